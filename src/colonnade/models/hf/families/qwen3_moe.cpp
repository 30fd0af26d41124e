// Qwen3-MoE: Qwen3 with experts in any layers, weights a softmax over the chosen or over all experts.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

/// Load-balancing loss weights are training settings and not read.
void read_qwen3_moe(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  const Sizes sizes = read_decoder(r, {151936, 2048, 6144, 24, 32, 4, 32768, {}}, 1e4);
  s["qk_layernorm"] = "true";
  keys.only("use_qk_norm", {true});
  reject_qwen_windows(keys, true, sizes.layers);
  keys.alias("num_experts", "num_local_experts");
  const bool over_chosen = keys.flag("norm_topk_prob", false);
  s.merge(Settings{{"num_experts", text(keys.integer("num_experts", 128, 1, kMostExperts))},
                   {"moe_router_score_function", "softmax"},
                   {"moe_router_topk", text(read_topk(keys, 8, over_chosen))},
                   {"moe_router_pre_softmax", text(!over_chosen)},
                   {"moe_ffn_hidden_size", text(keys.integer("moe_intermediate_size", 768))},
                   {"moe_layer_freq", read_layer_freq(keys, sizes.layers)}});
}

nlohmann::json write_qwen3_moe(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.update({{"attention_bias", false},
            {"use_sliding_window", false},
            {"moe_intermediate_size", m.moe.ffn_hidden_size},
            {"num_experts", m.moe.num_experts},
            {"num_experts_per_tok", m.moe.router_topk},
            {"norm_topk_prob", !m.moe.router_pre_softmax},
            {"decoder_sparse_step", 1},
            {"mlp_only_layers", dense_layers(m)}});
  return c;
}

}  // namespace

const Family& qwen3_moe() {
  static const Family kFamily = {
      .types = {{"qwen3_moe", {"Qwen3MoeForCausalLM", "Qwen3MoeModel"}}},
      .has = kLlamaLayers | Features{Feature::kQkNorm, Feature::kExperts},
      .may_have =
          kRopeScalings | Features{Feature::kGroupedQueries, Feature::kDenseLayers, Feature::kPreSoftmax},
      .names = joined({embedding_and_head(), pre_norms(), attention(), qk_norms(), gated_mlp(),
                       experts(kDeepseekExperts)}),
      .read = read_qwen3_moe,
      .write = write_qwen3_moe,
      .spelling = {.fused = fused_experts(kDeepseekExperts)}};
  return kFamily;
}

}  // namespace colonnade::models::hf
