// DeepSeek-V2: multi-latent attention, dense layers before MoE layers with shared experts, softmax router
// over all experts without normalization, expert groups ranked by their top score.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/deepseek.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_deepseek_v2(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  const Sizes sizes = read_latent_decoder(r, {102400, 4096, 11008, 32, 32, {}, 2048, {}});
  keys.only("moe_layer_freq", {1});
  read_experts_after_dense(r, sizes,
                           {.experts = 64, .per_token = 6, .width = 1407, .shared = 2, .dense_layers = 0});
  keys.only("scoring_func", {"softmax"});
  keys.only("norm_topk_prob", {false});
  s["moe_router_score_function"] = "softmax";
  s["moe_router_pre_softmax"] = "true";
  const std::string method = keys.word("topk_method", "greedy");
  const auto groups = keys.integer_or_null("n_group", std::nullopt);
  const auto chosen = keys.integer_or_null("topk_group", std::nullopt);
  if (method != "greedy" && method != "group_limited_greedy")
    keys.fault("topk_method", "must be greedy or group_limited_greedy", nlohmann::json(method));
  if (method != "group_limited_greedy" || groups.value_or(1) == 1) return;
  s["moe_router_num_groups"] = text(*groups);
  s["moe_router_group_topk"] = text(chosen.value_or(1));
  s["moe_router_group_best"] = "1";
}

nlohmann::json write_deepseek_v2(const config::Model& m) {
  nlohmann::json c = latent_decoder_config(m);
  c.update(experts_config(m));
  c.update({{"moe_layer_freq", 1},
            {"norm_topk_prob", false},
            {"scoring_func", "softmax"},
            {"topk_method", m.moe.router_num_groups > 1 ? "group_limited_greedy" : "greedy"}});
  return c;
}

/// The class requires whole heads.
bool is_deepseek_v2(const config::Model& m) {
  return has_latent_decoder(m) && has_experts_after_dense(m) && ranks_groups_by(m.moe, 1) &&
         has_whole_heads(m);
}

}  // namespace

const Family& deepseek_v2() {
  static const Family kFamily = {
      .types = {{"deepseek_v2", {"DeepseekV2ForCausalLM", "DeepseekV2Model"}}},
      .has = kLlamaLayers | Features{Feature::kLatentAttention, Feature::kQkNorm, Feature::kExperts,
                                     Feature::kSharedExperts, Feature::kPreSoftmax},
      .may_have = {Feature::kYarn, Feature::kDenseLayers, Feature::kRouterGroups, Feature::kRouterScale},
      .also = is_deepseek_v2,
      .names = joined({embedding_and_head(), pre_norms(), latent_attention(), gated_mlp(),
                       experts(kDeepseekExperts), shared_experts("mlp.shared_experts")}),
      .read = read_deepseek_v2,
      .write = write_deepseek_v2,
      .spelling = {.fused = fused_experts(kDeepseekExperts)}};
  return kFamily;
}

}  // namespace colonnade::models::hf
