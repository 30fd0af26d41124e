// Mixtral: Llama or Mistral with experts in every layer, weights a softmax over the chosen experts.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

/// Load-balancing loss weights (router_aux_loss_coef) and router jitter are training settings and not read.
void read_mixtral(const ReadContext& r) {
  const Sizes sizes = read_decoder(r, {32000, 4096, 14336, 32, 32, 8, 131072, {}, 1e-5}, 1e6);
  read_window_everywhere(r.keys, std::nullopt, sizes.layers, r.settings);
  r.keys.alias("num_experts", "num_local_experts");
  r.settings.merge(Settings{{"num_experts", text(r.keys.integer("num_experts", 8, 1, kMostExperts))},
                            {"moe_router_score_function", "softmax"},
                            {"moe_router_topk", text(read_topk(r.keys, 2, true))},
                            {"moe_router_pre_softmax", "false"},
                            {"moe_ffn_hidden_size", text(sizes.intermediate)},
                            {"moe_layer_freq", "1"}});
}

nlohmann::json write_mixtral(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.update({{"sliding_window", sliding_window(m)},
            {"intermediate_size", m.moe.ffn_hidden_size},
            {"num_local_experts", m.moe.num_experts},
            {"num_experts_per_tok", m.moe.router_topk}});
  return c;
}

}  // namespace

const Family& mixtral() {
  static const Family kFamily = {
      .types = {{"mixtral", {"MixtralForCausalLM", "MixtralModel"}}},
      .has = kLlamaLayers | Features{Feature::kExperts},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kWindow},
      .names = joined({embedding_and_head(), pre_norms(), attention(), experts(kMixtralExperts)}),
      .read = read_mixtral,
      .write = write_mixtral,
      .spelling = {.respellings = {{".mlp.", ".block_sparse_moe."}},
                   .fused = fused_experts(kMixtralExperts)}};
  return kFamily;
}

}  // namespace colonnade::models::hf
