// OLMo 2: Llama with norms on the outputs of attention and MLP instead of their inputs, and QK norms over all
// heads together.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_olmo2(const ReadContext& r) {
  const Sizes sizes = read_decoder(r, {50304, 4096, 11008, 32, 32, {}, 2048, {}, 1e-5}, 1e4);
  require_layer_types(r.keys, "full_attention", sizes.layers);
  r.settings["input_norms"] = "false";
  r.settings["sandwich_norm"] = "true";
  r.settings["qk_layernorm"] = "true";
  r.settings["qk_norm_across_heads"] = "true";
}

nlohmann::json write_olmo2(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c["attention_bias"] = false;
  return c;
}

}  // namespace

const Family& olmo2() {
  static const Family kFamily = {
      .types = {{"olmo2", {"Olmo2ForCausalLM", "Olmo2Model"}}},
      .has = kLlamaLayers | Features{Feature::kNoInputNorms, Feature::kSandwichNorm, Feature::kQkNorm,
                                     Feature::kNormAcrossHeads},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries},
      .also = has_square_heads,
      .names = joined({embedding_and_head(), output_norms(), attention(), qk_norms(), gated_mlp()}),
      .read = read_olmo2,
      .write = write_olmo2};
  return kFamily;
}

}  // namespace colonnade::models::hf
