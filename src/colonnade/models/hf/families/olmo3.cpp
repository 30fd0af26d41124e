// OLMo 3: OLMo 2 with sliding windows in some layers, whose rotary embedding is not scaled.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_olmo3(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  const Sizes sizes = read_sizes(keys, {50304, 4096, 11008, 32, 32, {}, 2048, {}, 1e-5}, s);
  keys.only("hidden_act", {"silu", "swish"});
  s.merge(Settings{{"activation", "swiglu"},
                   {"add_bias_linear", "false"},
                   {"add_qkv_bias", "false"},
                   {"input_norms", "false"},
                   {"sandwich_norm", "true"},
                   {"qk_layernorm", "true"},
                   {"qk_norm_across_heads", "true"}});
  const bool windows = read_windows(keys, 4, 4096, sizes.layers, s);
  read_positions_by_kind(keys,
                         {.theta = 500000,
                          .max_position_embeddings = sizes.max_positions,
                          .local = std::nullopt,
                          .by_kind = true},
                         windows, faults, s);
}

nlohmann::json write_olmo3(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.update({{"attention_bias", false},
            {"sliding_window", required_window(m, 4096)},
            {"layer_types", layer_types(m)}});
  c.erase("head_dim");  // the class has none
  return c;
}

/// Both kinds of layers have one base.
bool is_olmo3(const config::Model& m) { return has_square_heads(m) && m.rotary_base_local == m.rotary_base; }

}  // namespace

const Family& olmo3() {
  static const Family kFamily = {
      .types = {{"olmo3", {"Olmo3ForCausalLM", "Olmo3Model"}}},
      .has = kLlamaLayers | Features{Feature::kNoInputNorms, Feature::kSandwichNorm, Feature::kQkNorm,
                                     Feature::kNormAcrossHeads, Feature::kWindow, Feature::kLocalBase},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kSomeWindows},
      .also = is_olmo3,
      .names = joined({embedding_and_head(), output_norms(), attention(), qk_norms(), gated_mlp()}),
      .read = read_olmo3,
      .write = write_olmo3};
  return kFamily;
}

}  // namespace colonnade::models::hf
