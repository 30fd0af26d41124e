// Qwen2-MoE: Qwen2 with experts in any layers and a gated shared expert, weights a softmax over the chosen or
// over all experts.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_qwen2_moe(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  const Sizes sizes = read_decoder(r, {151936, 2048, 5632, 24, 16, 16, 32768, {}}, 1e4);
  s["add_qkv_bias"] = "true";
  keys.only("qkv_bias", {true});
  reject_qwen_windows(keys, false, sizes.layers);
  const bool over_chosen = keys.flag("norm_topk_prob", false);
  s.merge(Settings{
      {"num_experts", text(keys.integer("num_experts", 60, 1, kMostExperts))},
      {"moe_router_score_function", "softmax"},
      {"moe_router_topk", text(read_topk(keys, 4, over_chosen))},
      {"moe_router_pre_softmax", text(!over_chosen)},
      {"moe_ffn_hidden_size", text(keys.integer("moe_intermediate_size", 1408))},
      {"moe_shared_expert_intermediate_size", text(keys.integer("shared_expert_intermediate_size", 5632))},
      {"moe_shared_expert_gate", "true"},
      {"moe_layer_freq", read_layer_freq(keys, sizes.layers)}});
}

nlohmann::json write_qwen2_moe(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.update({{"use_sliding_window", false},
            {"qkv_bias", true},
            {"moe_intermediate_size", m.moe.ffn_hidden_size},
            {"shared_expert_intermediate_size", m.moe.shared_expert_intermediate_size},
            {"num_experts", m.moe.num_experts},
            {"num_experts_per_tok", m.moe.router_topk},
            {"norm_topk_prob", !m.moe.router_pre_softmax},
            {"decoder_sparse_step", 1},
            {"mlp_only_layers", dense_layers(m)}});
  c.erase("head_dim");  // the class has none
  return c;
}

Table shared_gate() {
  return {{"decoder.layers.{}.mlp.shared_experts.gate_weight",
           {"model.layers.{}.mlp.shared_expert_gate.weight"}}};
}

}  // namespace

const Family& qwen2_moe() {
  static const Family kFamily = {
      .types = {{"qwen2_moe", {"Qwen2MoeForCausalLM", "Qwen2MoeModel"}}},
      .has = kLlamaLayers |
             Features{Feature::kQkvBias, Feature::kExperts, Feature::kSharedExperts, Feature::kSharedGate},
      .may_have =
          kRopeScalings | Features{Feature::kGroupedQueries, Feature::kDenseLayers, Feature::kPreSoftmax},
      .also = has_square_heads,
      .names = joined({embedding_and_head(), pre_norms(), attention(), qkv_biases(), gated_mlp(),
                       experts(kDeepseekExperts), shared_experts("mlp.shared_expert"), shared_gate()}),
      .read = read_qwen2_moe,
      .write = write_qwen2_moe,
      .spelling = {.fused = fused_experts(kDeepseekExperts)}};
  return kFamily;
}

}  // namespace colonnade::models::hf
