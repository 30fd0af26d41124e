// Multi-latent attention: keys and values of all heads are made of one narrow vector of each token, queries
// of another one or of the hidden state. Source: Megatron's core/transformer/multi_latent_attention.py;
// DeepSeek-V2 2024.
#pragma once

#include <memory>
#include <optional>

#include "colonnade/layers/core_attention.h"
#include "colonnade/layers/linear.h"
#include "colonnade/layers/norm.h"
#include "colonnade/layers/whole_linear.h"
#include "colonnade/ops/latent_heads.h"

namespace colonnade::layers {

/// With x the normed hidden state, letters as in layout/params/latent_attention.h:
///
///     q = W_q_up norm(W_q_down x)            or W_q x without a narrow vector
///     c | key = W_kv_down x
///     per head  k | v = W_kv_up norm(c)
///     scores of (q without position, turned q) . (k, turned key), over sqrt(d + r), times the square of
///     yarn_mscale(factor, mscale_all_dim), with --rope-type rope too
///
/// Norms with --qk-layernorm only. The turning channels `key` are one for all heads. They turn in pairs
/// (2i, 2i + 1), as in DeepSeek's checkpoints and in Megatron.
///
/// x [s, b, h] (or [s / tp, b, h]) -> [s, b, h] before bias and residual. Each rank computes the narrow
/// vectors of the tokens it has, and heads / tp of what is made of them. Communication: with sequence
/// parallelism both normed vectors and `key` are gathered instead of x; without it their gradients are
/// summed.
///
/// With `mla_up_proj` among the parts to recompute, q, k and v are made again of the narrow vectors.
///
/// While text is generated, the cache keeps keys and values of all heads, not the narrow vectors.
class LatentAttention {
 public:
  LatentAttention(const layout::LatentAttentionParams& params, const config::Model& model,
                  const Context& context, std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer);
  [[nodiscard]] at::Tensor forward(const at::Tensor& normed, const tensor::Pass& pass) const;
  void add_parameters(std::vector<tensor::Parameter*>& all) const;

  RowLinear proj;

 private:
  /// What heads are made of: queries' and values' vectors [s, b, .] (or [s / tp, b, .]), normed, and the
  /// channels of all keys that turn.
  struct Narrow {
    at::Tensor queries, vectors, key;
  };
  [[nodiscard]] Narrow narrow_of(const at::Tensor& normed) const;
  [[nodiscard]] ops::Qkv heads_of(const Narrow& narrow, const at::Tensor& positions) const;

  std::optional<WholeLinear> q_down_;
  std::optional<Norm> q_norm_;
  ColumnLinear q_up_;
  WholeLinear kv_down_;
  std::optional<Norm> kv_norm_;
  ColumnLinear kv_up_;
  std::shared_ptr<const ops::RotaryTable> rotary_;
  CoreAttention core_;
  bool heads_again_;           ///< made again in the backward pass
  std::int64_t heads_, rank_;  ///< heads of this rank, width of the vector of keys and values
  ops::LatentHead head_;
};

}  // namespace colonnade::layers
