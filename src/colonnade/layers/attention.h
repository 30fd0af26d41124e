// Self-attention: fused QKV projection, optional norms of queries and keys, rotary embedding, core attention
// over this rank's heads, optional output gate, output projection.
// Source: Megatron's core/transformer/attention.py; Vaswani 2017; Ainslie 2023 (grouped queries).
#pragma once

#include <memory>
#include <optional>

#include "colonnade/layers/across_heads_norm.h"
#include "colonnade/layers/core_attention.h"
#include "colonnade/layers/linear.h"
#include "colonnade/layers/mixer.h"
#include "colonnade/layers/norm.h"
#include "colonnade/ops/rotary.h"
#include "colonnade/tensor/block.h"

namespace colonnade::layers {

/// Padding and relative position bias of a layer; sliding windows and sinks come from the settings, documents
/// from the batch.
struct MaskSpec {
  bool causal = true;
  std::optional<tensor::BatchKey> padding = {};  ///< batch key (CoreAttention::Args)
  RelativeBias bias = {};
};

/// Softmax scale: 1 / sqrt(query_pre_attn_scalar), by default 1 / sqrt(head size); with muP
/// sqrt(mup_base_head_dim) / head size^mup_attn_scale_power.
double softmax_scale(const config::Model& model);

/// x [s, b, h] (or [s / tp, b, h]) -> [s, b, h] before bias and residual. With --attention-output-gate the
/// fused projection also yields a gate of the size of the queries (ops/output_gate.h), whose sigmoid
/// multiplies the attention output before the output projection. Each rank holds heads / tp
/// query heads and max(1, groups / tp) key-value heads. With tp > groups, neighbouring ranks hold the same
/// key-value head; its gradients are all-reduced over them.
class Attention final : public Mixer {
 public:
  /// `rotary` is null with learned or no positions; layers of a stage with the same base share it.
  Attention(const layout::AttentionParams& params, const config::Model& model, const Context& context,
            std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer,
            const MaskSpec& mask_spec = {});
  at::Tensor forward(const MixerInput& x, const tensor::Pass& pass) override;
  [[nodiscard]] tensor::Parameter* output_bias() const override { return proj.bias.get(); }
  void add_parameters(std::vector<tensor::Parameter*>& all) const override;

  ColumnLinear qkv;
  RowLinear proj;

 private:
  /// Heads of the fused projection, normed and rotated; the gate is undefined without
  /// --attention-output-gate.
  [[nodiscard]] ops::GatedQkv split_heads(const at::Tensor& fused, const tensor::Pass& pass) const;

  /// A head, normed by `norm`, or by the weightless norm of --qk-l2-norm.
  [[nodiscard]] at::Tensor normed(const at::Tensor& x, const std::optional<Norm>& norm) const;

  std::optional<Norm> q_norm_, k_norm_;        ///< of each head
  std::optional<AcrossHeadsNorm> heads_norm_;  ///< of all heads, --qk-norm-across-heads
  bool norms_after_rotary_;                    ///< --qk-norm-after-rope
  double clip_;                                ///< --clip-qkv; 0: off
  std::optional<double> l2_norm_epsilon_;      ///< of --qk-l2-norm
  std::shared_ptr<const ops::RotaryTable> rotary_;
  CoreAttention core_;
  std::int64_t heads_, groups_, head_dim_;
  bool output_gate_;  ///< --attention-output-gate
};

}  // namespace colonnade::layers
