// See attention.h.
#include "colonnade/config/attention.h"

#include <fmt/format.h>

#include "colonnade/base/error.h"
#include "colonnade/config/schema.h"

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

void complete_attention(const Run& run, std::map<std::string, std::string>& settings,
                        const std::string& folder) {
  const auto is = [&](const char* key, const char* value) {
    const auto found = settings.find(key);
    return found != settings.end() && found->second == value;
  };
  if (!is("multi_latent_attention", "true")) return;
  settings.erase("kv_channels");  // derived from the other sizes; --kv-channels has no effect
  const auto without_table = [](const std::string& word) {
    return word == "rope" || word == "yarn" || word == "none";
  };
  const bool yarn = is("position_embedding_type", "yarn");
  // These three words all mean no learned position embeddings, so they do not contradict each other.
  if (run.given.contains("position_embedding_type") && without_table(settings["position_embedding_type"]) &&
      without_table(text_of(run, setting("position_embedding_type"))))
    settings.erase("position_embedding_type");
  if (settings.contains("rope_type")) return;
  settings["rope_type"] = yarn ? "yarn" : "rope";
  const bool interpolated = settings.contains("rotary_seq_len_interpolation_factor") &&
                            !is("rotary_seq_len_interpolation_factor", "1");
  if (interpolated || is("use_rope_scaling", "true"))
    throw ConfigError(fmt::format(
        "{}: multi-latent attention must have plain or YaRN rotary embeddings; got weights trained with {}; use the "
        "version that wrote them",
        folder, interpolated ? "--rotary-seq-len-interpolation-factor" : "--use-rope-scaling"));
}

}  // namespace colonnade::config
