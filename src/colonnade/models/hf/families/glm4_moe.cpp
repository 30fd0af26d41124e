// GLM-4.5 and later (MoE): partial rotary embedding, with or without QKV biases and QK norms; experts and
// router of DeepSeek-V3; multi-token prediction.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/deepseek.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

/// num_nextn_predict_layers is ignored, as MTP layers only serve training; --mtp-num-layers enables them.
void read_glm4_moe(const ReadContext& r) {
  const Sizes sizes = read_decoder(r, {151552, 4096, 10944, 46, 96, 8, 131072, {}, 1e-5},
                                   RopeDefaults{.theta = 1e4, .partial = 0.5});
  require_layer_types(r.keys, "full_attention", sizes.layers);
  r.settings["add_qkv_bias"] = text(r.keys.flag("attention_bias", false));
  r.settings["qk_layernorm"] = text(r.keys.flag("use_qk_norm", false));
  static constexpr std::string_view kMtpKeys[] = {"num_nextn_predict_layers", "num_mtp_layers"};
  r.keys.ignore(kMtpKeys);
  read_experts_after_dense(r, sizes,
                           {.experts = 128, .per_token = 8, .width = 1408, .shared = 1, .dense_layers = 1});
  read_sigmoid_choice(r, 1, 1);
}

nlohmann::json write_glm4_moe(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.update(experts_config(m));
  c.update({{"attention_bias", m.add_qkv_bias},
            {"use_qk_norm", m.qk_layernorm},
            {"partial_rotary_factor", m.rotary_percent},
            {"norm_topk_prob", m.moe.router_topk > 1},
            {"num_nextn_predict_layers", m.mtp_num_layers}});
  return c;
}

bool is_glm4_moe(const config::Model& m) { return has_experts_after_dense(m) && ranks_groups_by(m.moe, 2); }

}  // namespace

const Family& glm4_moe() {
  static const Family kFamily = {
      .types = {{"glm4_moe", {"Glm4MoeForCausalLM", "Glm4MoeModel"}}},
      .has = kLlamaLayers | Features{Feature::kExperts, Feature::kSharedExperts, Feature::kSigmoidRouter,
                                     Feature::kExpertBias},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kPartialRotary,
                                           Feature::kQkvBias, Feature::kQkNorm, Feature::kDenseLayers,
                                           Feature::kRouterGroups, Feature::kRouterScale, Feature::kMtp},
      .also = is_glm4_moe,
      .names = with_mtp_layers(
          joined({embedding_and_head(), pre_norms(), attention(), qkv_biases(), qk_norms(), gated_mlp(),
                  experts(kDeepseekExperts), router_bias("mlp.gate.e_score_correction_bias"),
                  shared_experts("mlp.shared_experts")})),
      .read = read_glm4_moe,
      .write = write_glm4_moe,
      .spelling = {.fused = fused_experts(kDeepseekExperts)},
      .numbers_mtp_layers = true};
  return kFamily;
}

}  // namespace colonnade::models::hf
