// See attention.h.
#include "colonnade/config/attention.h"

#include <fmt/format.h>

namespace colonnade::config {
namespace {

void derive_latent(Run& run) {
  Model& m = run.model;
  const std::int64_t channels = m.latent.qk_head_dim + m.latent.qk_pos_emb_head_dim;
  if (m.kv_channels != 0 && m.kv_channels != channels)
    run.notes.push_back(fmt::format(
        "--kv-channels: has no effect with --multi-latent-attention: the head size is --qk-head-dim + "
        "--qk-pos-emb-head-dim = {}; got {}",
        channels, m.kv_channels));
  m.kv_channels = channels;
  if (!m.rope_type) m.rope_type = RopeType::kYarn;
}

}  // namespace

void derive_attention(Run& run) {
  Model& m = run.model;
  if (m.latent.enabled) derive_latent(run);
  if (m.kv_channels == 0 && m.num_attention_heads > 0) m.kv_channels = m.hidden_size / m.num_attention_heads;
  if (m.num_query_groups == 0) m.num_query_groups = m.num_attention_heads;
}

Rotary rotary_of(const Model& m) {
  if (m.latent.enabled) return {false, m.latent.qk_pos_emb_head_dim, true};
  return {true, m.kv_channels, m.rotary_interleaved};
}

}  // namespace colonnade::config
