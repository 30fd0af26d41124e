// MiniMax-M2: experts in every layer with a sigmoid router and a bias for selection, QK norms over all heads
// together, partial rotary embedding.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

/// Published files name the rotary channels of a head, Transformers 5 their share.
RopeDefaults minimax_positions(Keys& keys) {
  constexpr std::int64_t kHead = 128;
  const auto channels = keys.integer_or_null("rotary_dim", std::nullopt);
  const std::int64_t head = keys.integer_or_null("head_dim", kHead).value_or(kHead);
  const double share = channels ? static_cast<double>(*channels) / static_cast<double>(head) : 1.0;
  return {.theta = 5e6, .partial = share};
}

void read_minimax_m2(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  const Sizes sizes = read_decoder(r, {200064, 3072, 1536, 62, 48, 8, 196608, 128}, minimax_positions(keys));
  require_layer_types(keys, "full_attention", sizes.layers);
  keys.alias("num_experts", "num_local_experts");
  keys.only("scoring_func", {"sigmoid"});
  for (const char* key : {"use_qk_norm", "use_routing_bias"}) keys.only(key, {true});
  keys.only("qk_norm_type", {"per_layer"});
  keys.only("shared_intermediate_size", {0});
  keys.only("sliding_window", {});
  if (const json kinds = keys.any("attn_type_list"); kinds.is_array())
    for (const json& kind : kinds)
      if (kind != 1) keys.fault("attn_type_list", "must be 1, full attention, in all layers", kind);
  static constexpr std::string_view kIgnored[] = {"use_mtp",
                                                  "num_mtp_modules",
                                                  "mtp_transformer_layers",
                                                  "mlp_intermediate_size",
                                                  "shared_moe_mode",
                                                  "layernorm_full_attention_beta",
                                                  "layernorm_linear_attention_beta",
                                                  "layernorm_mlp_beta"};
  keys.ignore(kIgnored);
  s["qk_layernorm"] = "true";
  s["qk_norm_across_heads"] = "true";
  s.merge(Settings{{"num_experts", text(keys.integer("num_experts", 256, 1, kMostExperts))},
                   {"moe_router_score_function", "sigmoid"},
                   {"moe_router_enable_expert_bias", "true"},
                   {"moe_router_topk", text(read_topk(keys, 8, true))},
                   {"moe_ffn_hidden_size", text(sizes.intermediate)},
                   {"moe_layer_freq", "1"}});
}

json write_minimax_m2(const config::Model& m) {
  json c = decoder_config(m);
  c.update({{"rotary_dim", m.rotary_channels()},
            {"intermediate_size", m.moe.ffn_hidden_size},
            {"num_local_experts", m.moe.num_experts},
            {"num_experts_per_tok", m.moe.router_topk},
            {"scoring_func", "sigmoid"},
            {"use_routing_bias", true},
            {"use_qk_norm", true},
            {"qk_norm_type", "per_layer"}});
  return c;
}

}  // namespace

const Family& minimax_m2() {
  static const Family kFamily = {
      .types = {{"minimax_m2", {"MiniMaxM2ForCausalLM", "MiniMaxM2Model"}}},
      .has = kLlamaLayers | Features{Feature::kQkNorm, Feature::kNormAcrossHeads, Feature::kExperts,
                                     Feature::kSigmoidRouter, Feature::kExpertBias},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kPartialRotary},
      .also = [](const config::Model& m) { return m.moe.router_topk > 1; },
      .names = joined({embedding_and_head(), pre_norms(), attention(), qk_norms(), experts(kMixtralExperts),
                       router_bias("block_sparse_moe.e_score_correction_bias")}),
      .read = read_minimax_m2,
      .write = write_minimax_m2,
      .spelling = {.respellings = {{".mlp.", ".block_sparse_moe."}},
                   .fused = fused_experts(kMixtralExperts)}};
  return kFamily;
}

}  // namespace colonnade::models::hf
