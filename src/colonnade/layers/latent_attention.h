// Multi-latent attention (MLA): keys and values of all heads are up-projected from one low-rank latent per
// token, queries from a latent of their own or from the hidden state.
// Source: Megatron's core/transformer/multi_latent_attention.py; DeepSeek-V2 2024.
#pragma once

#include <memory>
#include <optional>

#include "colonnade/layers/core_attention.h"
#include "colonnade/layers/linear.h"
#include "colonnade/layers/mixer.h"
#include "colonnade/layers/norm.h"
#include "colonnade/layers/replicated_linear.h"
#include "colonnade/ops/latent_heads.h"

namespace colonnade::layers {

/// With x the normed hidden state, letters as in layout/params/latent_attention.h:
///
///     q = W_q_up norm(W_q_down x)            or W_q x without a query latent
///     c | key = W_kv_down x
///     per head  k | v = W_kv_up norm(c)
///     scores = (q_nope, rope(q_rope)) . (k, rope(key)) / sqrt(d + r) * yarn_mscale(factor,
///     mscale_all_dim)^2, as in Megatron with --rope-type rope too
///
/// Norms with --qk-layernorm only. All heads share the rotary channels `key`. Rotation pairs channels
/// (2i, 2i + 1), as in DeepSeek's checkpoints and in Megatron.
///
/// x [s, b, h] (or [s / tp, b, h]) -> [s, b, h] before bias and residual. Each rank computes the latents of
/// its tokens and up-projects heads / tp of the heads. Communication: with sequence parallelism the normed
/// latents and `key` are all-gathered instead of x; without it their gradients are all-reduced.
///
/// With `mla_up_proj` among the modules to recompute, q, k and v are recomputed from the latents.
///
/// During generation the KV cache holds keys and values of all heads, not the latents.
class LatentAttention final : public Mixer {
 public:
  LatentAttention(const layout::LatentAttentionParams& params, const config::Model& model,
                  const Context& context, std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer);
  at::Tensor forward(const MixerInput& x, const tensor::Pass& pass) override;
  [[nodiscard]] tensor::Parameter* output_bias() const override { return proj.bias.get(); }
  void add_parameters(std::vector<tensor::Parameter*>& all) const override;

  RowLinear proj;

 private:
  /// Normed latents [s, b, .] (or [s / tp, b, .]) and the rotary key channels that all heads share.
  struct Latents {
    at::Tensor queries, kv, key;
  };
  [[nodiscard]] Latents latents_of(const at::Tensor& normed) const;
  [[nodiscard]] ops::Qkv heads_of(const Latents& latents, const at::Tensor& positions) const;

  std::optional<ReplicatedLinear> q_down_;
  std::optional<Norm> q_norm_;
  ColumnLinear q_up_;
  ReplicatedLinear kv_down_;
  std::optional<Norm> kv_norm_;
  ColumnLinear kv_up_;
  std::shared_ptr<const ops::RotaryTable> rotary_;
  CoreAttention core_;
  bool recompute_heads_;       ///< heads are recomputed in the backward pass
  std::int64_t heads_, rank_;  ///< heads on this rank, rank of the key-value latent
  ops::LatentHead head_;
};

}  // namespace colonnade::layers
