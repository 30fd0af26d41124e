// Rules of multi-latent attention and of multi-token prediction.
#include "colonnade/config/schema.h"
#include "colonnade/plan/rules/table.h"

namespace colonnade::plan {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool latent(const Run& r) { return r.model.latent.enabled; }

Broken settings_without_latent(const Run& r) {
  if (latent(r)) return std::nullopt;
  Finding found{"",
                "does nothing without --multi-latent-attention",
                "",
                {},
                "leave it out, or add --multi-latent-attention"};
  const std::string& group = config::setting("multi_latent_attention").group;
  for (const config::Setting& s : config::schema())
    if (s.group == group && s.get != nullptr && gives_idle(r, s, "multi_latent_attention"))
      found.add(s, config::text_of(r, s), s.default_text());
  return found.edits.empty() ? Broken{} : found;
}

Broken groups(const Run& r) {
  const auto& m = r.model;
  if (!latent(r) || m.num_query_groups == m.num_attention_heads) return std::nullopt;
  return Finding{"--num-query-groups",
                 "must be as many as heads with --multi-latent-attention",
                 fmt::format("{} and {} heads", m.num_query_groups, m.num_attention_heads),
                 {{"num_query_groups", text(m.num_attention_heads)}},
                 "leave out --group-query-attention"};
}

Broken channels(const Run& r) {
  const auto& m = r.model;
  const std::int64_t head = m.latent.qk_head_dim + m.latent.qk_pos_emb_head_dim;
  if (!latent(r) || m.kv_channels == head) return std::nullopt;
  return Finding{
      "--kv-channels",
      "is --qk-head-dim and --qk-pos-emb-head-dim together with --multi-latent-attention",
      fmt::format("{} and {} + {}", m.kv_channels, m.latent.qk_head_dim, m.latent.qk_pos_emb_head_dim),
      {{"kv_channels", text(head)}},
      "leave it out"};
}

Broken positions(const Run& r) {
  if (!latent(r) || r.model.rotary()) return std::nullopt;
  return Finding{"--position-embedding-type",
                 "must be rope or yarn with --multi-latent-attention",
                 "another one",
                 {{"position_embedding_type", r.model.rotary_scaling_factor > 1 ? "yarn" : "rope"}},
                 ""};
}

/// In Megatron multi-latent attention has YaRN unless --rope-type rope is given; a factor of 1 scales
/// nothing.
Broken yarn_of_latents(const Run& r) {
  const auto& m = r.model;
  if (!latent(r) || m.position_embedding != config::PositionEmbedding::kRope || m.rotary_scaling_factor <= 1)
    return std::nullopt;
  return Finding{"--rotary-scaling-factor",
                 "must stand beside --position-embedding-type yarn: with --multi-latent-attention Megatron "
                 "takes yarn, also where that flag says rope",
                 fmt::format("{} and --position-embedding-type rope", m.rotary_scaling_factor),
                 {{"position_embedding_type", "yarn"}},
                 "write --position-embedding-type yarn"};
}

Broken turned(const Run& r) {
  const std::int64_t channels = r.model.latent.qk_pos_emb_head_dim;
  if (!latent(r) || channels % 2 == 0) return std::nullopt;
  return Finding{"--qk-pos-emb-head-dim",
                 "must be even",
                 text(channels),
                 {{"qk_pos_emb_head_dim", text(channels + 1)}, {"kv_channels", "0"}},
                 fmt::format("set --qk-pos-emb-head-dim {}", channels + 1)};
}

/// Settings of other attention that this one has no use for.
Broken idle_beside_latent(const Run& r) {
  if (!latent(r)) return std::nullopt;
  Finding found{"", "does nothing with --multi-latent-attention", "", {}, "leave it out"};
  for (const char* key : {"add_qkv_bias", "rotary_percent", "rotary_interleaved", "query_pre_attn_scalar"}) {
    const config::Setting& s = config::setting(key);
    if (config::text_of(r, s) != s.default_text()) found.add(s, config::text_of(r, s), s.default_text());
  }
  return found.edits.empty() ? Broken{} : found;
}

Broken sinks(const Run& r) {
  if (!latent(r) || r.model.softmax_type == config::SoftmaxType::kVanilla) return std::nullopt;
  return Finding{"--softmax-type",
                 "must be vanilla with --multi-latent-attention",
                 config::text_of(r, config::setting("softmax_type")),
                 {{"softmax_type", "vanilla"}},
                 ""};
}

Broken factor_without_prediction(const Run& r) {
  const config::Setting& s = config::setting("mtp_loss_scaling_factor");
  if (r.model.mtp_num_layers > 0 || !gives_idle(r, s, "mtp_num_layers")) return std::nullopt;
  Finding found{"", "does nothing without --mtp-num-layers", "", {}, "leave it out, or add --mtp-num-layers"};
  found.add(s, config::text_of(r, s), s.default_text());
  return found;
}

Broken prediction_positions(const Run& r) {
  if (r.model.mtp_num_layers == 0 ||
      r.model.position_embedding != config::PositionEmbedding::kLearnedAbsolute)
    return std::nullopt;
  return Finding{"--mtp-num-layers",
                 "needs positions without a table of their own",
                 "--position-embedding-type learned_absolute",
                 {{"position_embedding_type", "rope"}},
                 ""};
}

constexpr Rule kLatent[] = {
    {"idle-latent", false, settings_without_latent, "multi_latent_attention=false; q_lora_rank=16",
     "They are sizes of multi-latent attention."},
    {"latent-groups", false, groups, "num_query_groups=4",
     "Keys and values of every head are made of one narrow vector: no heads share them.",
     "num_attention_heads"},
    {"latent-channels", false, channels, "kv_channels=16",
     "A head of queries and keys has channels without and with position.",
     "qk_head_dim qk_pos_emb_head_dim multi_latent_attention"},
    {"latent-positions", false, positions, "position_embedding_type=none",
     "Some channels of each head turn with the position.", "multi_latent_attention"},
    {"latent-yarn", false, yarn_of_latents, "rotary_scaling_factor=40",
     "Leaving the scaling out would train another model than Megatron does with these flags.",
     "multi_latent_attention position_embedding_type"},
    {"latent-turned", false, turned, "qk_pos_emb_head_dim=5", "Rotation turns channels in pairs."},
    {"latent-idle", false, idle_beside_latent, "rotary_percent=0.5",
     "Projections behind narrow vectors have no biases, scores no scale but that of the head, and the channels that turn are said by "
     "--qk-pos-emb-head-dim, in pairs of neighbours.",
     "multi_latent_attention"},
    {"latent-sinks", false, sinks, "softmax_type=off-by-one; attention_dropout=0",
     "Heads made of narrow vectors have no sinks.", "multi_latent_attention"},
    {"idle-prediction", true, factor_without_prediction, "mtp_loss_scaling_factor=0.3",
     "There is no further token to predict."},
    {"prediction-positions", false, prediction_positions,
     "multi_latent_attention=false; kv_channels=0; mtp_num_layers=1; position_embedding_type=learned_absolute; "
     "qk_head_dim=128; qk_pos_emb_head_dim=64; v_head_dim=128; kv_lora_rank=32",
     "The layers behind the model read word embeddings again, on the last pipeline rank, and would need the table of "
     "positions there too."},
};

}  // namespace

std::span<const Rule> latent_rules() { return kLatent; }

}  // namespace colonnade::plan
