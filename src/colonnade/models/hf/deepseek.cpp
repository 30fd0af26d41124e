// See deepseek.h.
#include "colonnade/models/hf/deepseek.h"

#include <algorithm>

#include "colonnade/layout/layer_kind.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

void read_latent_experts(Keys& keys, const Sizes& sizes, Settings& s) {
  keys.alias("n_routed_experts", "num_local_experts");
  const std::int64_t topk = keys.integer("num_experts_per_tok", 8);
  if (const bool normed = keys.flag("norm_topk_prob", true); normed != (topk > 1))
    keys.fault("norm_topk_prob", "must be true, or false with one expert a token", json(normed));
  const std::int64_t expert = keys.integer("moe_intermediate_size", 2048);
  const std::int64_t dense = keys.integer("first_k_dense_replace", 3, 0, kMostLayers);
  if (dense >= sizes.layers)
    keys.fault("first_k_dense_replace",
               fmt::format("must be below the {} layers: at least one needs experts", sizes.layers),
               json(dense));
  const std::int64_t shared = keys.integer("n_shared_experts", 1, 0, kMostExperts);
  if (shared == 0)
    keys.fault("n_shared_experts", "must be at least 1: MoE layers need shared experts", json(0));
  s["num_experts"] = text(keys.integer("n_routed_experts", 256, 1, kMostExperts));
  s["moe_layer_freq"] = dense > 0 ? fmt::format("([0]*{}+[1]*{})", std::min(dense, sizes.layers),
                                                std::max<std::int64_t>(sizes.layers - dense, 0))
                                  : "1";
  s["moe_ffn_hidden_size"] = text(expert);
  s["moe_shared_expert_intermediate_size"] = text(expert * shared);
  s["moe_router_topk"] = text(topk);
  s["moe_router_score_function"] = "sigmoid";
  s["moe_router_enable_expert_bias"] = "true";
  s["moe_router_topk_scaling_factor"] = text(keys.real("routed_scaling_factor", 2.5));
  const std::int64_t groups = keys.integer("n_group", 8);
  const std::int64_t chosen = keys.integer("topk_group", 4);
  if (groups == 1) return;
  s["moe_router_num_groups"] = text(groups);
  s["moe_router_group_topk"] = text(chosen);
  s["moe_router_group_best"] = "2";
}

/// Multi-latent attention supports YaRN scaling only.
void reject_other_scaling(Keys& keys, const Settings& s) {
  const auto linear = s.find("rotary_seq_len_interpolation_factor");
  const bool interpolated = linear != s.end() && linear->second != "1";
  if (!interpolated && !s.contains("use_rope_scaling")) return;
  keys.fault(keys.object("rope_scaling").empty() ? "rope_parameters" : "rope_scaling",
             "must be of rope_type default or yarn: latent attention supports no other scaling",
             json(interpolated ? "linear" : "llama3"));
}

}  // namespace

json deepseek_config(const config::Model& m) {
  const config::Moe& moe = m.moe;
  const auto dense = std::ranges::count(layout::layer_kinds(m), false, &layout::LayerKind::is_moe);
  return {{"attention_bias", false},
          {"head_dim", m.latent.qk_pos_emb_head_dim},
          {"q_lora_rank", m.latent.q_lora_rank > 0 ? json(m.latent.q_lora_rank) : json()},
          {"kv_lora_rank", m.latent.kv_lora_rank},
          {"qk_nope_head_dim", m.latent.qk_head_dim},
          {"qk_rope_head_dim", m.latent.qk_pos_emb_head_dim},
          {"qk_head_dim", m.kv_channels},
          {"v_head_dim", m.latent.v_head_dim},
          {"rope_interleave", true},
          {"first_k_dense_replace", dense},
          {"moe_layer_freq", 1},
          {"moe_intermediate_size", moe.ffn_hidden_size},
          {"n_routed_experts", moe.num_experts},
          {"n_shared_experts", moe.shared_expert_intermediate_size / moe.ffn_hidden_size},
          {"num_experts_per_tok", moe.router_topk},
          {"n_group", std::max<std::int64_t>(moe.router_num_groups, 1)},
          {"topk_group", std::max<std::int64_t>(moe.router_group_topk, 1)},
          {"norm_topk_prob", moe.router_topk > 1},
          {"scoring_func", "sigmoid"},
          {"topk_method", "noaux_tc"},
          {"routed_scaling_factor", moe.router_topk_scaling_factor.value_or(1)},
          {"num_nextn_predict_layers", m.mtp_num_layers}};
}

SizeDefaults deepseek_sizes(Keys& keys, SizeDefaults defaults) {
  const std::int64_t rope_dim = keys.integer("qk_rope_head_dim", 64);
  const std::int64_t nope_dim = keys.integer("qk_nope_head_dim", 128);
  keys.only("head_dim", {rope_dim});
  keys.only("qk_head_dim", {nope_dim + rope_dim});
  defaults.head_dim = rope_dim;
  return defaults;
}

void read_deepseek_v3(Keys& keys, const Sizes& sizes, Settings& s) {
  keys.only("rope_interleave", {true});
  keys.only("moe_layer_freq", {1});
  keys.only("scoring_func", {"sigmoid"});
  keys.only("topk_method", {"noaux_tc"});
  keys.only("num_key_value_heads", {sizes.heads});
  static constexpr std::string_view kMtpKeys[] = {"num_nextn_predict_layers", "num_mtp_layers"};
  keys.ignore(kMtpKeys);
  if (s["layernorm_epsilon"] != "1e-06")
    keys.fault("rms_norm_eps", "must be 1e-06, the fixed epsilon of the latent norms",
               json::parse(s["layernorm_epsilon"]));
  const std::int64_t nope_dim = keys.integer("qk_nope_head_dim", 128);
  const std::int64_t rope_dim = keys.integer("qk_rope_head_dim", 64);
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
  read_latent_experts(keys, sizes, s);
}

}  // namespace colonnade::models::hf
