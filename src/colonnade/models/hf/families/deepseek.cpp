// See deepseek.h.
#include "colonnade/models/hf/families/deepseek.h"

#include <algorithm>

#include "colonnade/layout/layer_kind.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

/// Epsilon of the latent norms.
constexpr double kLatentEpsilon = 1e-6;

/// Multi-latent attention supports YaRN scaling only.
void reject_other_scaling(Keys& keys, const Settings& s) {
  const auto linear = s.find("rotary_seq_len_interpolation_factor");
  const bool interpolated = linear != s.end() && linear->second != "1";
  if (!interpolated && !s.contains("use_rope_scaling")) return;
  keys.fault(keys.object("rope_scaling").empty() ? "rope_parameters" : "rope_scaling",
             "must be of rope_type default or yarn: latent attention supports no other scaling",
             json(interpolated ? "linear" : "llama3"));
}

/// Transformers ignores mscale without mscale_all_dim and scales no scores of plain rotary embedding.
bool has_latent_positions(const config::Model& m) {
  if (m.rotary_scaling_factor <= 1) return true;
  if (!m.uses_yarn()) return m.mscale_all_dim == 0;
  return m.mscale_all_dim > 0 ? m.mscale > 0 : m.mscale == 1;
}

}  // namespace

Sizes read_latent_decoder(const ReadContext& r, SizeDefaults defaults) {
  auto& [type, keys, faults, s, tensors] = r;
  const std::int64_t rope_dim = keys.integer("qk_rope_head_dim", 64);
  const std::int64_t nope_dim = keys.integer("qk_nope_head_dim", 128);
  keys.only("head_dim", {rope_dim});
  keys.only("qk_head_dim", {nope_dim + rope_dim});
  defaults.head_dim = rope_dim;
  const Sizes sizes = read_decoder(r, defaults, 1e4);
  require_layer_types(keys, "full_attention", sizes.layers);
  keys.only("num_key_value_heads", {sizes.heads});
  if (s["layernorm_epsilon"] != text(kLatentEpsilon))
    keys.fault("rms_norm_eps", "must be 1e-06, the fixed epsilon of the latent norms",
               json::parse(s["layernorm_epsilon"]));
  s["multi_latent_attention"] = "true";
  s["q_lora_rank"] = text(keys.integer_or_null("q_lora_rank", 1536).value_or(0));
  s["kv_lora_rank"] = text(keys.integer("kv_lora_rank", 512));
  s["qk_head_dim"] = text(nope_dim);
  s["qk_pos_emb_head_dim"] = text(rope_dim);
  s["kv_channels"] = text(nope_dim + rope_dim);
  const bool yarn = s["position_embedding_type"] == "yarn";
  s["rope_type"] = yarn ? "yarn" : "rope";
  if (!yarn) s["rotary_scaling_factor"] = "1";  // conflicts with a factor on the command line
  s["v_head_dim"] = text(keys.integer("v_head_dim", 128));
  s["num_query_groups"] = s["num_attention_heads"];
  s["qk_layernorm"] = "true";
  reject_other_scaling(keys, s);
  return sizes;
}

void read_experts_after_dense(const ReadContext& r, const Sizes& sizes, const ExpertDefaults& d) {
  auto& [type, keys, faults, s, tensors] = r;
  keys.alias("n_routed_experts", "num_local_experts");
  const std::int64_t expert = keys.integer("moe_intermediate_size", d.width);
  const std::int64_t dense = keys.integer("first_k_dense_replace", d.dense_layers, 0, kMostLayers);
  if (dense >= sizes.layers)
    keys.fault("first_k_dense_replace",
               fmt::format("must be below the {} layers: at least one needs experts", sizes.layers),
               json(dense));
  const std::int64_t shared = keys.integer("n_shared_experts", d.shared, 0, kMostExperts);
  if (shared == 0)
    keys.fault("n_shared_experts", "must be at least 1: MoE layers need shared experts", json(0));
  s["num_experts"] = text(keys.integer("n_routed_experts", d.experts, 1, kMostExperts));
  s["moe_layer_freq"] = dense_first(dense, sizes.layers);
  s["moe_ffn_hidden_size"] = text(expert);
  s["moe_shared_expert_intermediate_size"] = text(expert * shared);
  s["moe_router_topk"] = text(keys.integer("num_experts_per_tok", d.per_token));
  s["moe_router_topk_scaling_factor"] = text(keys.real("routed_scaling_factor", d.scale));
}

void read_sigmoid_choice(const ReadContext& r, std::int64_t default_groups, std::int64_t default_chosen) {
  auto& [type, keys, faults, s, tensors] = r;
  keys.only("scoring_func", {"sigmoid"});
  keys.only("topk_method", {"noaux_tc"});
  if (const bool normed = keys.flag("norm_topk_prob", true); normed != (s["moe_router_topk"] != "1"))
    keys.fault("norm_topk_prob", "must be true, or false with one expert a token", json(normed));
  s["moe_router_score_function"] = "sigmoid";
  s["moe_router_enable_expert_bias"] = "true";
  const std::int64_t groups = keys.integer("n_group", default_groups);
  const std::int64_t chosen = keys.integer("topk_group", default_chosen);
  if (groups == 1) return;
  s["moe_router_num_groups"] = text(groups);
  s["moe_router_group_topk"] = text(chosen);
  s["moe_router_group_best"] = "2";
}

json latent_decoder_config(const config::Model& m) {
  json c = decoder_config(m);
  c.update({{"attention_bias", false},
            {"head_dim", m.latent.qk_pos_emb_head_dim},
            {"q_lora_rank", m.latent.q_lora_rank > 0 ? json(m.latent.q_lora_rank) : json()},
            {"kv_lora_rank", m.latent.kv_lora_rank},
            {"qk_nope_head_dim", m.latent.qk_head_dim},
            {"qk_rope_head_dim", m.latent.qk_pos_emb_head_dim},
            {"qk_head_dim", m.kv_channels},
            {"v_head_dim", m.latent.v_head_dim}});
  return c;
}

json experts_config(const config::Model& m) {
  const config::Moe& moe = m.moe;
  return {{"first_k_dense_replace", dense_layers(m).size()},
          {"moe_intermediate_size", moe.ffn_hidden_size},
          {"n_routed_experts", moe.num_experts},
          {"n_shared_experts", moe.shared_expert_intermediate_size / moe.ffn_hidden_size},
          {"num_experts_per_tok", moe.router_topk},
          {"n_group", std::max<std::int64_t>(moe.router_num_groups, 1)},
          {"topk_group", std::max<std::int64_t>(moe.router_group_topk, 1)},
          {"routed_scaling_factor", moe.router_topk_scaling_factor.value_or(1)}};
}

bool has_latent_decoder(const config::Model& m) {
  return has_latent_positions(m) && m.norm_epsilon == kLatentEpsilon;
}

bool has_experts_after_dense(const config::Model& m) {
  const std::vector<layout::LayerKind> kinds = layout::layer_kinds(m);
  return m.moe.shared_expert_intermediate_size % m.moe.ffn_hidden_size == 0 &&
         std::ranges::is_sorted(kinds, {}, &layout::LayerKind::is_moe) && kinds.back().is_moe();
}

bool ranks_groups_by(const config::Moe& moe, std::int64_t best) {
  if (moe.router_num_groups <= 1) return true;
  return best == (moe.router_group_best > 0
                      ? moe.router_group_best
                      : moe.router_topk / std::max<std::int64_t>(moe.router_group_topk, 1));
}

}  // namespace colonnade::models::hf
