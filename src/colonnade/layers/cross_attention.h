// Attention of a decoder's tokens to those of its encoder.
#pragma once

#include "colonnade/layers/core_attention.h"
#include "colonnade/layers/linear.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::layers {

/// x [s, b, h] and the encoder's output [t, b, h] (or [s / tp, b, h] and [t / tp, b, h]) -> [s, b, h] before
/// bias and residual: queries are made of x, keys and values of the output, and every query sees all keys but
/// those that `encoder_padding` [b, t] of the batch hides. No positions. Each rank holds heads / tp heads.
/// Communication: both projections open the parallel stretch by themselves (ColumnLinear).
/// Source: Megatron's core/transformer/attention.py (CrossAttention); Raffel et al. 2020.
class CrossAttention {
 public:
  CrossAttention(const layout::CrossAttentionParams& params, const config::Model& model,
                 const Context& context, std::int64_t layer);
  [[nodiscard]] at::Tensor forward(const at::Tensor& normed, const at::Tensor& encoded,
                                   const tensor::Pass& pass) const;
  void add_parameters(std::vector<tensor::Parameter*>& all) const;

  ColumnLinear q, kv;
  RowLinear proj;

 private:
  CoreAttention core_;
  std::int64_t head_dim_;
};

}  // namespace colonnade::layers
