// OLMoE: Llama with experts in every layer, weights a softmax over all or over the chosen experts, QK norms
// over all heads together, clamped queries, keys and values.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_olmoe(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  const Sizes sizes = read_decoder(r, {50304, 2048, 2048, 16, 16, {}, 4096, {}, 1e-5}, 1e4);
  require_layer_types(keys, "full_attention", sizes.layers);
  s["qk_layernorm"] = "true";
  s["qk_norm_across_heads"] = "true";
  s["clip_qkv"] = text(keys.real_or_null("clip_qkv", std::nullopt, {.least = 1e-9}).value_or(0));
  keys.alias("num_experts", "num_local_experts");
  const bool over_chosen = keys.flag("norm_topk_prob", false);
  s.merge(Settings{{"num_experts", text(keys.integer("num_experts", 64, 1, kMostExperts))},
                   {"moe_router_score_function", "softmax"},
                   {"moe_router_topk", text(read_topk(keys, 8, over_chosen))},
                   {"moe_router_pre_softmax", text(!over_chosen)},
                   {"moe_ffn_hidden_size", text(sizes.intermediate)},
                   {"moe_layer_freq", "1"}});
}

nlohmann::json write_olmoe(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.update({{"attention_bias", false},
            {"clip_qkv", m.clip_qkv > 0 ? nlohmann::json(m.clip_qkv) : nlohmann::json()},
            {"intermediate_size", m.moe.ffn_hidden_size},
            {"num_experts", m.moe.num_experts},
            {"num_experts_per_tok", m.moe.router_topk},
            {"norm_topk_prob", !m.moe.router_pre_softmax}});
  c.erase("head_dim");  // the class has none
  return c;
}

}  // namespace

const Family& olmoe() {
  static const Family kFamily = {
      .types = {{"olmoe", {"OlmoeForCausalLM", "OlmoeModel"}}},
      .has = kLlamaLayers | Features{Feature::kQkNorm, Feature::kNormAcrossHeads, Feature::kExperts},
      .may_have =
          kRopeScalings | Features{Feature::kGroupedQueries, Feature::kClippedHeads, Feature::kPreSoftmax},
      .also = has_square_heads,
      .names =
          joined({embedding_and_head(), pre_norms(), attention(), qk_norms(), experts(kDeepseekExperts)}),
      .read = read_olmoe,
      .write = write_olmoe,
      .spelling = {.fused = fused_experts(kDeepseekExperts)}};
  return kFamily;
}

}  // namespace colonnade::models::hf
