// DeepSeek-V3 and models of its class (Kimi K2): multi-latent attention with latent norms and --norm-epsilon
// 1e-6, dense layers before MoE layers with shared experts, sigmoid router with a bias for selection only,
// expert groups ranked by their top two scores; multi-token prediction.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/deepseek.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

/// num_nextn_predict_layers is ignored, as MTP layers only serve training; --mtp-num-layers enables them.
void read_deepseek_v3(const ReadContext& r) {
  const Sizes sizes = read_latent_decoder(r, {129280, 7168, 18432, 61, 128, {}, 4096, {}});
  r.keys.only("rope_interleave", {true});
  r.keys.only("moe_layer_freq", {1});
  static constexpr std::string_view kMtpKeys[] = {"num_nextn_predict_layers", "num_mtp_layers"};
  r.keys.ignore(kMtpKeys);
  read_experts_after_dense(
      r, sizes,
      {.experts = 256, .per_token = 8, .width = 2048, .shared = 1, .dense_layers = 3, .scale = 2.5});
  read_sigmoid_choice(r, 8, 4);
}

nlohmann::json write_deepseek_v3(const config::Model& m) {
  nlohmann::json c = latent_decoder_config(m);
  c.update(experts_config(m));
  c.update({{"rope_interleave", true},
            {"moe_layer_freq", 1},
            {"norm_topk_prob", m.moe.router_topk > 1},
            {"scoring_func", "sigmoid"},
            {"topk_method", "noaux_tc"},
            {"num_nextn_predict_layers", m.mtp_num_layers}});
  return c;
}

bool is_deepseek_v3(const config::Model& m) {
  return has_latent_decoder(m) && has_experts_after_dense(m) && ranks_groups_by(m.moe, 2);
}

}  // namespace

const Family& deepseek_v3() {
  static const Family kFamily = {
      .types = {{"deepseek_v3", {"DeepseekV3ForCausalLM", "DeepseekV3Model"}},
                {"kimi_k2", {"DeepseekV3ForCausalLM", "KimiK2ForCausalLM"}}},
      .has = kLlamaLayers | Features{Feature::kLatentAttention, Feature::kQkNorm, Feature::kExperts,
                                     Feature::kSharedExperts, Feature::kSigmoidRouter, Feature::kExpertBias},
      .may_have = {Feature::kYarn, Feature::kDenseLayers, Feature::kRouterGroups, Feature::kRouterScale,
                   Feature::kMtp},
      .also = is_deepseek_v3,
      .names = with_mtp_layers(joined(
          {embedding_and_head(), pre_norms(), latent_attention(), gated_mlp(), experts(kDeepseekExperts),
           router_bias("mlp.gate.e_score_correction_bias"), shared_experts("mlp.shared_experts")})),
      .read = read_deepseek_v3,
      .write = write_deepseek_v3,
      .spelling = {.fused = fused_experts(kDeepseekExperts)},
      .numbers_mtp_layers = true};
  return kFamily;
}

}  // namespace colonnade::models::hf
