// Mistral: Llama with a sliding window, or with a hidden size that is no multiple of the heads.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_mistral(const ReadContext& r) {
  const Sizes sizes = read_decoder(r, {32000, 4096, 14336, 32, 32, 8, 131072, {}}, 1e4);
  read_window_everywhere(r.keys, 4096, sizes.layers, r.settings);
}

nlohmann::json write_mistral(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c["sliding_window"] = sliding_window(m);
  return c;
}

}  // namespace

const Family& mistral() {
  static const Family kFamily = {
      .types = {{"mistral", {"MistralForCausalLM", "MistralModel"}}},
      .has = kLlamaLayers,
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kWindow},
      .names = joined({embedding_and_head(), pre_norms(), attention(), gated_mlp()}),
      .read = read_mistral,
      .write = write_mistral};
  return kFamily;
}

}  // namespace colonnade::models::hf
