// Rules for norms of queries and keys, layers without input norms or RoPE, and LongRoPE.
#include <fmt/format.h>

#include "colonnade/config/layer_pattern.h"
#include "colonnade/config/schema.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

Broken input_norms(const Run& r) {
  const bool post_norm = r.model.apply_residual_connection_post_layernorm;
  if (r.model.input_norms || (r.model.sandwich_norm && !post_norm)) return std::nullopt;
  return Finding{"--no-input-norms",
                 "requires --sandwich-norm, without --apply-residual-connection-post-layernorm",
                 post_norm ? "the residual taken from the norm's output" : "layers without any norm",
                 {{"input_norms", "true"}},
                 ""};
}

Broken across_heads(const Run& r) {
  const auto& m = r.model;
  const bool rms = m.normalization == config::Normalization::kRmsNorm;
  if (!m.qk_norm_across_heads || (m.qk_layernorm && rms && !m.latent.enabled)) return std::nullopt;
  return Finding{"--qk-norm-across-heads",
                 "requires --qk-layernorm and --normalization RMSNorm, without --multi-latent-attention",
                 m.latent.enabled ? "--multi-latent-attention"
                 : m.qk_layernorm ? "LayerNorm"
                                  : "no --qk-layernorm",
                 {{"qk_norm_across_heads", "false"}},
                 ""};
}

Broken norm_after_rope(const Run& r) {
  const auto& m = r.model;
  if (!m.qk_norm_after_rope || (m.qk_layernorm && !m.qk_norm_across_heads && !m.latent.enabled))
    return std::nullopt;
  return Finding{"--qk-norm-after-rope",
                 "requires --qk-layernorm, without --qk-norm-across-heads and --multi-latent-attention",
                 m.latent.enabled ? "--multi-latent-attention"
                 : m.qk_layernorm ? "both"
                                  : "no --qk-layernorm",
                 {{"qk_norm_after_rope", "false"}},
                 ""};
}

Broken clipped_heads(const Run& r) {
  const auto& m = r.model;
  const bool head_norms = (m.qk_layernorm && !m.qk_norm_across_heads) || m.qk_l2_norm;
  if (m.clip_qkv == 0 || (!head_norms && !m.latent.enabled && !m.attention_output_gate)) return std::nullopt;
  return Finding{"--clip-qkv",
                 "is not supported with norms of each head, --multi-latent-attention or an output gate",
                 m.latent.enabled ? "--multi-latent-attention"
                 : head_norms     ? "such norms"
                                  : "a gate",
                 {{"clip_qkv", "0"}},
                 "remove --clip-qkv"};
}

Broken layers_without_rope(const Run& r) {
  const auto& m = r.model;
  if (m.no_rope_freq.empty()) return std::nullopt;
  const bool valid = config::expand_no_rope_freq(m.no_rope_freq, m.num_layers).has_value();
  if (valid && m.has_rotary() && !m.latent.enabled) return std::nullopt;
  return Finding{"--no-rope-freq",
                 valid ? "requires --position-embedding-type rope or yarn, without --multi-latent-attention"
                       : "must be a divisor of the layers, or a list with a 0 or 1 for each layer",
                 valid ? config::text_of(r, config::setting("position_embedding_type"))
                       : fmt::format("{} for {} layers", m.no_rope_freq, m.num_layers),
                 {{"no_rope_freq", ""}},
                 "remove --no-rope-freq"};
}

Broken query_scaling(const Run& r) {
  const auto& m = r.model;
  const bool plain = m.uses_yarn() && !m.latent.enabled && m.rotary_percent == 1 && !m.qk_layernorm &&
                     !m.qk_l2_norm && m.no_rope_freq.empty();
  if (m.query_scaling_beta == 0 || plain) return std::nullopt;
  return Finding{
      "--query-scaling-beta",
      "requires --position-embedding-type yarn of full heads in all layers, without norms of queries",
      m.uses_yarn() ? "other heads" : config::text_of(r, config::setting("position_embedding_type")),
      {{"query_scaling_beta", "0"}},
      "remove --query-scaling-beta"};
}

bool has_divisors(const std::string& text, std::int64_t count) {
  const auto numbers = config::parse_numbers(text);
  if (!numbers || static_cast<std::int64_t>(numbers->size()) != count) return false;
  for (const double one : *numbers)
    if (one <= 0) return false;
  return true;
}

Broken longrope_lists(const Run& r) {
  const auto& m = r.model;
  if (!m.uses_longrope()) return std::nullopt;
  const std::int64_t pairs = m.rotary_channels() / 2;
  for (const auto& [flag, key, value] :
       {std::tuple{"--longrope-short-factor", "longrope_short_factor", &m.longrope_short_factor},
        std::tuple{"--longrope-long-factor", "longrope_long_factor", &m.longrope_long_factor}})
    if (!has_divisors(*value, pairs))
      return Finding{
          flag,
          fmt::format("must be a list of {} numbers above 0, one for each pair of channels", pairs),
          *value,
          {{"longrope_short_factor", ""}, {"longrope_long_factor", ""}},
          "correct the list"};
  return std::nullopt;
}

Broken longrope_alone(const Run& r) {
  const auto& m = r.model;
  const bool scaled =
      m.uses_yarn() || m.use_rope_scaling || m.rotary_seq_len_interpolation_factor != 1 || m.latent.enabled;
  if (!m.uses_longrope() || !scaled) return std::nullopt;
  return Finding{"--longrope-short-factor",
                 "is not supported with other scaling of RoPE or --multi-latent-attention",
                 m.latent.enabled ? "--multi-latent-attention" : "both",
                 {{"longrope_short_factor", ""}, {"longrope_long_factor", ""}},
                 "remove one of them"};
}

constexpr Rule kNorms[] = {
    {"input-norms", false, input_norms, "input_norms=false", "The residual stream would grow without bounds.",
     "sandwich_norm apply_residual_connection_post_layernorm"},
    {"across-heads", false, across_heads, "qk_norm_across_heads=true",
     "The flag widens the norms of --qk-layernorm; LayerNorm over all heads is not implemented.",
     "qk_layernorm normalization multi_latent_attention"},
    {"norm-after-rope", false, norm_after_rope, "qk_norm_after_rope=true",
     "The flag moves the norms of --qk-layernorm; no published model has wide ones after RoPE.",
     "qk_layernorm qk_norm_across_heads multi_latent_attention"},
    {"clip-qkv", false, clipped_heads, "clip_qkv=8; qk_l2_norm=true",
     "Heads are clamped before they are split and normalized.",
     "qk_layernorm qk_l2_norm multi_latent_attention attention_output_gate"},
    {"no-rope", false, layers_without_rope, "no_rope_freq=3; position_embedding_type=rope",
     "As in Megatron, N leaves out every N-th layer and divides their number.",
     "num_layers position_embedding_type multi_latent_attention"},
    {"query-scaling", false, query_scaling, "query_scaling_beta=0.1",
     "Queries are scaled where they are rotated.",
     "position_embedding_type rotary_percent qk_layernorm qk_l2_norm multi_latent_attention no_rope_freq"},
    {"longrope-factors", false, longrope_lists,
     "position_embedding_type=rope; longrope_short_factor=[1]; longrope_long_factor=[1]",
     "Every frequency has a divisor of its own.", "kv_channels rotary_percent"},
    {"longrope-alone", false, longrope_alone,
     "position_embedding_type=rope; longrope_short_factor=[1,1,1,1]; longrope_long_factor=[1,1,1,1]; "
     "use_rope_scaling=true",
     "Frequencies would be scaled twice.", "use_rope_scaling position_embedding_type"},
};

}  // namespace

std::span<const Rule> norm_rules() { return kNorms; }

}  // namespace colonnade::rules
