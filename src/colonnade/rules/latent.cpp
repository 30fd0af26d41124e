// Rules for multi-latent attention and multi-token prediction.
#include "colonnade/config/schema.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool has_latent_attention(const Run& r) { return r.model.latent.enabled; }

Broken query_groups(const Run& r) {
  const auto& m = r.model;
  if (!has_latent_attention(r) || m.num_query_groups == m.num_attention_heads) return std::nullopt;
  return Finding{"--num-query-groups",
                 "must equal --num-attention-heads with --multi-latent-attention",
                 fmt::format("{} and {} heads", m.num_query_groups, m.num_attention_heads),
                 {{"num_query_groups", text(m.num_attention_heads)}},
                 "remove --group-query-attention"};
}

Broken yarn_conflict(const Run& r) {
  const auto& m = r.model;
  if (!has_latent_attention(r) || m.position_embedding != config::PositionEmbedding::kYarn || m.uses_yarn())
    return std::nullopt;
  return Finding{"--rope-type",
                 "must be yarn with --position-embedding-type yarn",
                 "rope",
                 {{"position_embedding_type", "rope"}},
                 "remove one of them"};
}

Broken yarn_without_latents(const Run& r) {
  const bool given = r.given.contains("rope_type") && r.model.rope_type == config::RopeType::kYarn;
  if (has_latent_attention(r) || !given) return std::nullopt;
  return Finding{"--rope-type",
                 "must be rope without --multi-latent-attention",
                 "yarn",
                 {{"rope_type", "unset"}},
                 "use --position-embedding-type yarn"};
}

Broken rotated_channels(const Run& r) {
  const std::int64_t channels = r.model.latent.qk_pos_emb_head_dim;
  if (!has_latent_attention(r) || channels % 2 == 0) return std::nullopt;
  return Finding{"--qk-pos-emb-head-dim",
                 "must be even",
                 text(channels),
                 {{"qk_pos_emb_head_dim", text(channels + 1)}},
                 fmt::format("set --qk-pos-emb-head-dim {}", channels + 1)};
}

/// Settings of standard attention. Megatron rejects the first; the second exists only here.
Broken unsupported_with_latents(const Run& r) {
  if (!has_latent_attention(r)) return std::nullopt;
  Finding found{"", "must not be set with --multi-latent-attention", "", {}, ""};
  for (const char* key : {"rotary_interleaved", "query_pre_attn_scalar"}) {
    const config::Setting& s = config::setting(key);
    if (config::text_of(r, s) != s.default_text()) found.add(s, config::text_of(r, s), s.default_text());
  }
  found.fix = removal(found);
  return found.edits.empty() ? Broken{} : found;
}

/// Parts of standard attention that Megatron rejects here too.
Broken standard_heads_only(const Run& r) {
  if (!has_latent_attention(r)) return std::nullopt;
  Finding found{"", "must not be set with --multi-latent-attention", "", {}, ""};
  found.add_if(r, r.model.qk_l2_norm, "qk_l2_norm", "false");
  found.add_if(r, r.model.attention_output_gate, "attention_output_gate", "false");
  found.fix = removal(found);
  return found.edits.empty() ? Broken{} : found;
}

Broken sinks(const Run& r) {
  if (!has_latent_attention(r) || r.model.softmax_type == config::SoftmaxType::kVanilla) return std::nullopt;
  return Finding{"--softmax-type",
                 "must be vanilla with --multi-latent-attention",
                 config::text_of(r, config::setting("softmax_type")),
                 {{"softmax_type", "vanilla"}},
                 ""};
}

Broken mtp_positions(const Run& r) {
  if (r.model.mtp_num_layers == 0 ||
      r.model.position_embedding != config::PositionEmbedding::kLearnedAbsolute)
    return std::nullopt;
  return Finding{"--mtp-num-layers",
                 "is not supported with learned position embeddings",
                 "--position-embedding-type learned_absolute",
                 {{"position_embedding_type", "rope"}},
                 ""};
}

constexpr Rule kLatent[] = {
    {"latent-groups", false, query_groups, "num_query_groups=4",
     "Every head projects its own keys and values from the shared latent.", "num_attention_heads"},
    {"latent-yarn", false, yarn_conflict, "position_embedding_type=yarn; rope_type=rope",
     "--position-embedding-type yarn selects YaRN for multi-latent attention too.",
     "multi_latent_attention rope_type"},
    {"rope-type", false, yarn_without_latents,
     "multi_latent_attention=false; rope_type=yarn; qk_head_dim=128; "
     "qk_pos_emb_head_dim=64; v_head_dim=128; kv_lora_rank=32",
     "As in Megatron, --rope-type chooses the rotary embedding of multi-latent attention.",
     "multi_latent_attention"},
    {"latent-rope-dims", false, rotated_channels, "qk_pos_emb_head_dim=5", "RoPE rotates channels in pairs."},
    {"latent-no-effect", false, unsupported_with_latents, "rotary_interleaved=true",
     "Multi-latent attention scales scores by the root of its own head size and always rotates adjacent "
     "channels.",
     "multi_latent_attention"},
    {"latent-heads", false, standard_heads_only, "qk_l2_norm=true",
     "As in Megatron, heads of multi-latent attention have no norm and no gate; --qk-layernorm norms the "
     "latents.",
     "multi_latent_attention"},
    {"latent-sinks", false, sinks, "softmax_type=off-by-one; attention_dropout=0",
     "Attention sinks are not implemented for multi-latent attention.", "multi_latent_attention"},
    {"mtp-positions", false, mtp_positions,
     "multi_latent_attention=false; mtp_num_layers=1; position_embedding_type=learned_absolute; "
     "qk_head_dim=128; qk_pos_emb_head_dim=64; v_head_dim=128; kv_lora_rank=32",
     "MTP layers look up word embeddings on the last pipeline rank and would need the position embeddings "
     "there too."},
};

}  // namespace

std::span<const Rule> latent_rules() { return kLatent; }

}  // namespace colonnade::rules
