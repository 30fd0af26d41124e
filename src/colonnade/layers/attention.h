// Self-attention of a GPT layer: fused q/k/v projection, optional q/k norms and rotary positions,
// causal attention over this rank's heads, output projection.
// Source: Megatron's core/transformer/attention.py; Vaswani 2017; Ainslie 2023 (grouped queries).
#pragma once

#include <memory>
#include <optional>

#include "colonnade/layers/core_attention.h"
#include "colonnade/layers/linear.h"
#include "colonnade/layers/norm.h"
#include "colonnade/ops/rotary.h"
#include "colonnade/tensor/block.h"

namespace colonnade::layers {

/// Whom a token sees besides what windows and sinks of the settings say.
struct Sight {
  bool causal = true;
  std::string mask = "attention_mask";  ///< as CoreAttention::Args
  RelativeBias bias = {};
};

/// What scores are multiplied by.
double score_scale(const config::Model& model);

/// x [s, b, h] (or [s / tp, b, h]) -> [s, b, h] before bias and residual. Each rank holds heads / tp
/// query heads and max(1, groups / tp) key-value heads; where tp is larger than the groups,
/// neighbours hold the same key-value head and its gradients are summed over them.
class Attention {
 public:
  /// `rotary` may be null (learned or no positions) and is shared by the layers of a stage that have its
  /// base.
  Attention(const layout::AttentionParams& params, const config::Model& model, const Context& context,
            std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer, const Sight& sight = {});
  [[nodiscard]] at::Tensor forward(const at::Tensor& normed, const tensor::Pass& pass) const;
  void add_parameters(std::vector<tensor::Parameter*>& all) const;

  ColumnLinear qkv;
  RowLinear proj;

 private:
  [[nodiscard]] ops::Qkv split_heads(const at::Tensor& fused, const tensor::Pass& pass) const;

  std::optional<Norm> q_norm_, k_norm_;
  std::shared_ptr<const ops::RotaryTable> rotary_;
  CoreAttention core_;
  std::int64_t heads_, groups_, head_dim_;
};

}  // namespace colonnade::layers
