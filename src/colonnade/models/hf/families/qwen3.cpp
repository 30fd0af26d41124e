// Qwen3: Llama with QK norms.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_qwen3(const ReadContext& r) {
  const Sizes sizes = read_decoder(r, {151936, 4096, 22016, 32, 32, 32, 32768, 128}, 1e4);
  r.settings["qk_layernorm"] = "true";
  r.keys.only("use_qk_norm", {true});
  reject_qwen_windows(r.keys, false, sizes.layers);
}

nlohmann::json write_qwen3(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.update({{"attention_bias", false}, {"use_sliding_window", false}});
  return c;
}

}  // namespace

const Family& qwen3() {
  static const Family kFamily = {
      .types = {{"qwen3", {"Qwen3ForCausalLM", "Qwen3Model"}}},
      .has = kLlamaLayers | Features{Feature::kQkNorm},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries},
      .names = joined({embedding_and_head(), pre_norms(), attention(), qk_norms(), gated_mlp()}),
      .read = read_qwen3,
      .write = write_qwen3};
  return kFamily;
}

}  // namespace colonnade::models::hf
