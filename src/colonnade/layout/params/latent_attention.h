// The parameters of multi-latent attention. Letters: n heads, d channels of a head of queries and keys
// without and r with position, v of values; q and c the widths of the vectors that queries, and keys and
// values, are made of.
//
// Down projections are whole on every tensor rank, as are the norms behind them: each rank computes them for
// the tokens it has between the parallel stretches. With sequence parallelism these are a part of all, so
// their gradients are partial over tp; without it, every rank computes the same whole gradient, because the
// gradients of the narrow vectors are summed over tp where the parallel stretch begins. Up projections are
// cut by heads.
// Source: Megatron's core/transformer/multi_latent_attention.py; DeepSeek-V2 2024.
#pragma once

#include <optional>
#include <string>

#include "colonnade/layout/params/parts.h"

namespace colonnade::layout {

class ParamBuilder;

struct LatentAttentionParams {
  NormParams input_norm;
  std::optional<ParamSpec> q_down;    ///< [q, h]; empty: queries are made of the hidden state
  std::optional<NormParams> q_norm;   ///< [q], with --qk-layernorm
  LinearParams q_up;                  ///< rows [n heads of (d | r)], of q or h columns
  ParamSpec kv_down;                  ///< rows [c | r]: the vector, and the turning channels of all keys
  std::optional<NormParams> kv_norm;  ///< [c], with --qk-layernorm
  LinearParams kv_up;                 ///< rows [n heads of (d | v)], of c columns
  LinearParams proj;                  ///< [h, n v]
};

/// `layer` is the name in front, "decoder.layers.3".
LatentAttentionParams latent_attention_params(const ParamBuilder& build, const std::string& layer);

template <typename F>
void for_each(const LatentAttentionParams& p, F&& f) {
  for_each(p.input_norm, f);
  for_each(p.q_down, f);
  for_each(p.q_norm, f);
  for_each(p.q_up, f);
  for_each(p.kv_down, f);
  for_each(p.kv_norm, f);
  for_each(p.kv_up, f);
  for_each(p.proj, f);
}

}  // namespace colonnade::layout
