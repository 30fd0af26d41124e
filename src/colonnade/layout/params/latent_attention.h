// Parameters of multi-latent attention (MLA). Letters: n heads; per head d query/key channels without
// position, r rotary channels, v value channels; q and c are the ranks of the query latent and of the
// key/value latent.
//
// Down projections and the norms after them are replicated over tp: each rank computes them for its tokens
// outside the tensor-parallel region. With sequence parallelism that is a shard of the tokens, so their
// gradients are partial over tp; without it every rank computes the same full gradient, because the latents'
// gradients are all-reduced over tp at the start of the tensor-parallel region. Up projections are sharded by
// heads. Source: Megatron's core/transformer/multi_latent_attention.py; DeepSeek-V2 2024.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/latent_attention.h"
#include "colonnade/layout/params/parts.h"
#include "colonnade/layout/qk_clip.h"

namespace colonnade::layout {

class ParamBuilder;

struct LatentAttentionParams {
  std::optional<ParamSpec> q_down;   ///< [q, h]; empty: queries are projected from the hidden state
  std::optional<NormParams> q_norm;  ///< [q], with --qk-layernorm
  LinearParams q_up;                 ///< rows [n heads of (d | r)], q or h columns
  ParamSpec kv_down;  ///< rows [c | r]: key/value latent and the rotary key channels shared by all heads
  std::optional<NormParams> kv_norm;  ///< [c], with --qk-layernorm
  LinearParams kv_up;                 ///< rows [n heads of (d | v)], c columns
  LinearParams proj;                  ///< [h, n v]
};

/// Parameters of a layer; `layer` is the name prefix, "decoder.layers.3".
LatentAttentionParams latent_attention_params(const ParamBuilder& build, const std::string& layer);

/// The row scales of add_qk_clip_scales(). With the scale e of a head, query channels without position take
/// e^alpha, their keys e^(1 - alpha), and rotary query channels e, because all heads share the rotary key.
void add_qk_clip_scales(const LatentAttentionParams& p, const config::LatentAttention& latent,
                        const QkClip& clip, const std::vector<double>& max_scores, RowScales& scales);

template <typename F>
void for_each(const LatentAttentionParams& p, F&& f) {
  for_each(p.q_down, f);
  for_each(p.q_norm, f);
  for_each(p.q_up, f);
  for_each(p.kv_down, f);
  for_each(p.kv_norm, f);
  for_each(p.kv_up, f);
  for_each(p.proj, f);
}

}  // namespace colonnade::layout
