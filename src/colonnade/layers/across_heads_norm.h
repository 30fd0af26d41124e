// RMS norms over all query heads of a token together and over all its key heads (--qk-norm-across-heads).
// Source: OLMo et al. 2024 (OLMo 2).
#pragma once

#include <memory>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/layers/context.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::layers {

/// y = w x / sqrt(mean(x^2) + eps), with the mean over the heads of all tensor ranks. Computed in fp32
/// (float64 for float64).
///
/// Communication: forward one all-reduce over tp of two numbers per token, backward one more. A key head that
/// several ranks hold counts once; its gradients on these ranks are partial, as those of the projection.
class AcrossHeadsNorm {
 public:
  AcrossHeadsNorm(const layout::NormParams& q, const layout::NormParams& k, const config::Model& model,
                  const Context& context);
  /// qkv [s, b, (n [+ n] + 2 g) d], this rank's heads of queries, gates, keys and values -> the same with
  /// normed queries and keys.
  [[nodiscard]] at::Tensor forward(const at::Tensor& qkv) const;

  std::unique_ptr<tensor::Parameter> q_weight, k_weight;  ///< [n d], [g d] of this rank

 private:
  std::int64_t first_key_;
  double q_size_, k_size_;  ///< elements of all ranks
  double key_copies_;       ///< ranks that hold the same key head
  double epsilon_;
  bool zero_centered_;
  comm::Group tp_;
};

}  // namespace colonnade::layers
