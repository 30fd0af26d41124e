// What lies between the projections of attention: scores, softmax and the weighted sum of values over this
// rank's heads. Kinds of attention differ in how they make queries, keys and values; this part is theirs all.
// Source: Megatron's core/transformer/dot_product_attention.py.
#pragma once

#include <string>

#include "colonnade/layers/context.h"
#include "colonnade/ops/rotary.h"
#include "colonnade/tensor/block.h"

namespace colonnade::layers {

/// softmax(scale * q k^T + masks) v over the heads of this rank: q [b, n / tp, s, d], k and v
/// [b, max(1, g / tp), s, d] -> [s, b, n / tp * d]. While tokens are generated, keys and values of earlier
/// ones come out of the cache of the pass.
class CoreAttention {
 public:
  struct Args {
    std::int64_t layer = 0;  ///< 0-based global number: the place in the cache
    double scale = 1.0;      ///< of the scores
    std::string name;        ///< keys the dropout; the same in every layout
  };
  CoreAttention(const config::Model& model, const Context& context, const Args& args);
  [[nodiscard]] at::Tensor forward(ops::Qkv heads, const tensor::Pass& pass) const;

 private:
  [[nodiscard]] at::Tensor attend(ops::Qkv heads, const tensor::Pass& pass) const;

  bool again_;  ///< made again in the backward pass
  std::int64_t layer_, window_, first_head_, all_heads_;
  double scale_, dropout_;
  std::uint64_t dropout_key_;
};

}  // namespace colonnade::layers
