// Qwen2: Llama with QKV biases.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_qwen2(const ReadContext& r) {
  const Sizes sizes = read_decoder(r, {151936, 4096, 22016, 32, 32, 32, 32768, {}}, 1e4);
  r.settings["add_qkv_bias"] = "true";
  // The class has these biases, whatever the keys say.
  r.keys.only("attention_bias", {true, false});
  r.keys.only("qkv_bias", {true});
  reject_qwen_windows(r.keys, false, sizes.layers);
}

nlohmann::json write_qwen2(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c["use_sliding_window"] = false;
  return c;
}

}  // namespace

const Family& qwen2() {
  static const Family kFamily = {
      .types = {{"qwen2", {"Qwen2ForCausalLM", "Qwen2Model"}}},
      .has = kLlamaLayers | Features{Feature::kQkvBias},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries},
      .names = joined({embedding_and_head(), pre_norms(), attention(), qkv_biases(), gated_mlp()}),
      .read = read_qwen2,
      .write = write_qwen2};
  return kFamily;
}

}  // namespace colonnade::models::hf
