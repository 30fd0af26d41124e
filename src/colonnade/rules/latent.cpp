// Rules of multi-latent attention and of multi-token prediction.
#include "colonnade/config/schema.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool latent(const Run& r) { return r.model.latent.enabled; }

Broken groups(const Run& r) {
  const auto& m = r.model;
  if (!latent(r) || m.num_query_groups == m.num_attention_heads) return std::nullopt;
  return Finding{"--num-query-groups",
                 "must be as many as heads with --multi-latent-attention",
                 fmt::format("{} and {} heads", m.num_query_groups, m.num_attention_heads),
                 {{"num_query_groups", text(m.num_attention_heads)}},
                 "leave out --group-query-attention"};
}

Broken yarn_named_twice(const Run& r) {
  const auto& m = r.model;
  if (!latent(r) || m.position_embedding != config::PositionEmbedding::kYarn || m.yarn()) return std::nullopt;
  return Finding{"--rope-type",
                 "must agree with --position-embedding-type, which says yarn",
                 "rope",
                 {{"position_embedding_type", "rope"}},
                 "remove one of them"};
}

Broken yarn_of_other_attention(const Run& r) {
  const bool given = r.given.contains("rope_type") && r.model.rope_type == config::RopeType::kYarn;
  if (latent(r) || !given) return std::nullopt;
  return Finding{"--rope-type",
                 "must be rope without --multi-latent-attention",
                 "yarn",
                 {{"rope_type", "unset"}},
                 "use --position-embedding-type yarn"};
}

Broken turned(const Run& r) {
  const std::int64_t channels = r.model.latent.qk_pos_emb_head_dim;
  if (!latent(r) || channels % 2 == 0) return std::nullopt;
  return Finding{"--qk-pos-emb-head-dim",
                 "must be even",
                 text(channels),
                 {{"qk_pos_emb_head_dim", text(channels + 1)}},
                 fmt::format("set --qk-pos-emb-head-dim {}", channels + 1)};
}

/// Settings of other attention that this one has not. Megatron rejects the first; the second is ours alone.
Broken idle_beside_latent(const Run& r) {
  if (!latent(r)) return std::nullopt;
  Finding found{"", "is not supported with --multi-latent-attention", "", {}, "remove it"};
  for (const char* key : {"rotary_interleaved", "query_pre_attn_scalar"}) {
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
    {"latent-groups", false, groups, "num_query_groups=4",
     "Keys and values of every head are made of one narrow vector: no heads share them.",
     "num_attention_heads"},
    {"latent-yarn", false, yarn_named_twice, "position_embedding_type=yarn; rope_type=rope",
     "--position-embedding-type yarn means YaRN with multi-latent attention too.",
     "multi_latent_attention rope_type"},
    {"rope-type", false, yarn_of_other_attention,
     "multi_latent_attention=false; rope_type=yarn; qk_head_dim=128; "
     "qk_pos_emb_head_dim=64; v_head_dim=128; kv_lora_rank=32",
     "As in Megatron, --rope-type chooses the rotary embedding of multi-latent attention.",
     "multi_latent_attention"},
    {"latent-turned", false, turned, "qk_pos_emb_head_dim=5", "Rotation turns channels in pairs."},
    {"latent-idle", false, idle_beside_latent, "rotary_interleaved=true",
     "Multi-latent attention scales scores by the root of its own head size, and rotates pairs of neighbours always.",
     "multi_latent_attention"},
    {"latent-sinks", false, sinks, "softmax_type=off-by-one; attention_dropout=0",
     "Heads made of narrow vectors have no sinks.", "multi_latent_attention"},
    {"prediction-positions", false, prediction_positions,
     "multi_latent_attention=false; mtp_num_layers=1; position_embedding_type=learned_absolute; "
     "qk_head_dim=128; qk_pos_emb_head_dim=64; v_head_dim=128; kv_lora_rank=32",
     "The layers behind the model read word embeddings again, on the last pipeline rank, and would need the table of "
     "positions there too."},
};

}  // namespace

std::span<const Rule> latent_rules() { return kLatent; }

}  // namespace colonnade::rules
