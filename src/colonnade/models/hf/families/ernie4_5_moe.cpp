// ERNIE 4.5 (MoE): interleaved rotary embedding, dense layers before MoE layers with shared experts, weights
// a softmax over the chosen experts, which a bias on the scores helps to choose.
#include <algorithm>

#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/deepseek.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

void read_ernie(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  const Sizes sizes = read_decoder(r, {103424, 2560, 12288, 28, 20, 4, 131072, {}, 1e-5, true}, 5e5);
  s["rotary_interleaved"] = "true";
  const std::int64_t first = keys.integer("moe_layer_start_index", 1, 0, kMostLayers);
  const std::int64_t last = keys.integer("moe_layer_end_index", -1, -1, kMostLayers);
  if (last >= 0 && last != sizes.layers - 1)
    keys.fault("moe_layer_end_index", "must be the last layer", json(last));
  keys.only("moe_layer_interval", {1});
  if (first >= sizes.layers)
    keys.fault("moe_layer_start_index", fmt::format("must be below the {} layers", sizes.layers),
               json(first));
  keys.alias("moe_k", "num_experts_per_tok");
  keys.alias("moe_num_experts", "num_experts");
  constexpr double kMost = 1e-6;  // a floor of the sum of the weights, which it never reaches
  keys.real("moe_norm_min", 1e-12, {.least = 0, .most = kMost});
  const std::int64_t topk = keys.integer("moe_k", 6, 2);
  const std::int64_t width = keys.integer("moe_intermediate_size", 1536);
  const std::int64_t shared = keys.integer("moe_num_shared_experts", 2, 0, kMostExperts);
  s.merge(Settings{{"num_experts", text(keys.integer("moe_num_experts", 64, 1, kMostExperts))},
                   {"moe_router_score_function", "softmax"},
                   {"moe_router_enable_expert_bias", "true"},
                   {"moe_router_topk", text(topk)},
                   {"moe_router_pre_softmax", "false"},
                   {"moe_ffn_hidden_size", text(width)},
                   {"moe_layer_freq", dense_first(first, sizes.layers)}});
  if (shared > 0) s["moe_shared_expert_intermediate_size"] = text(width * shared);
}

json write_ernie(const config::Model& m) {
  json c = decoder_config(m);
  c.update({{"use_bias", false},
            {"moe_k", m.moe.router_topk},
            {"moe_num_experts", m.moe.num_experts},
            {"moe_intermediate_size", m.moe.ffn_hidden_size},
            {"moe_num_shared_experts", m.moe.shared_expert_intermediate_size / m.moe.ffn_hidden_size},
            {"moe_layer_start_index", dense_layers(m).size()},
            {"moe_layer_end_index", m.num_layers - 1},
            {"moe_layer_interval", 1}});
  c.erase("head_dim");  // the class has none
  return c;
}

bool is_ernie(const config::Model& m) { return has_square_heads(m) && has_experts_after_dense(m); }

Table choice_bias() {
  return {{.ours = "decoder.layers.{}.mlp.router.expert_bias",
           .theirs = {"model.layers.{}.mlp.moe_statics.e_score_correction_bias"},
           .has_leading_one = true}};
}

}  // namespace

const Family& ernie4_5_moe() {
  static const Family kFamily = {
      .types = {{"ernie4_5_moe", {"Ernie4_5_MoeForCausalLM", "Ernie4_5_MoeModel"}}},
      .has = kLlamaLayers | Features{Feature::kInterleavedRotary, Feature::kExperts, Feature::kExpertBias},
      .may_have =
          kRopeScalings | Features{Feature::kGroupedQueries, Feature::kDenseLayers, Feature::kSharedExperts},
      .also = is_ernie,
      .names = joined({embedding_and_head(), pre_norms(), attention(), gated_mlp(), experts(kDeepseekExperts),
                       choice_bias(), shared_experts("mlp.shared_experts")}),
      .read = read_ernie,
      .write = write_ernie,
      .spelling = {.fused = fused_experts(kDeepseekExperts)},
      .unused = {{"model.mtp_", "", "tensors of layers for multi-token prediction"}}};
  return kFamily;
}

}  // namespace colonnade::models::hf
