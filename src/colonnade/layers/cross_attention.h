// Cross-attention of a decoder to its encoder.
#pragma once

#include "colonnade/layers/core_attention.h"
#include "colonnade/layers/linear.h"
#include "colonnade/layers/mixer.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::layers {

/// x [s, b, h] and the encoder's output [t, b, h] (or [s / tp, b, h] and [t / tp, b, h]) -> [s, b, h] before
/// bias and residual. Queries come from x, keys and values from the encoder's output; only keys that the
/// batch's `encoder_padding` [b, t] marks are masked. No positions. Each rank holds heads / tp heads.
/// Communication: that of both column-parallel projections (ColumnLinear).
/// Source: Megatron's core/transformer/attention.py (CrossAttention); Raffel et al. 2020.
class CrossAttention final : public Mixer {
 public:
  CrossAttention(const layout::CrossAttentionParams& params, const config::Model& model,
                 const Context& context, std::int64_t layer);
  at::Tensor forward(const MixerInput& x, const tensor::Pass& pass) override;
  [[nodiscard]] tensor::Parameter* output_bias() const override { return proj.bias.get(); }
  void add_parameters(std::vector<tensor::Parameter*>& all) const override;

  ColumnLinear q, kv;
  RowLinear proj;

 private:
  CoreAttention core_;
  std::int64_t head_dim_;
};

}  // namespace colonnade::layers
