// Llama: rotary embedding over the full head, RMSNorm, SwiGLU, no biases.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_llama(const ReadContext& r) {
  const Sizes sizes = read_decoder(r, {32000, 4096, 11008, 32, 32, {}, 2048, {}}, 1e4);
  require_layer_types(r.keys, "full_attention", sizes.layers);
}

nlohmann::json write_llama(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.update({{"attention_bias", false}, {"mlp_bias", false}});
  return c;
}

}  // namespace

const Family& llama() {
  static const Family kFamily = {
      .types = {{"llama", {"LlamaForCausalLM", "LLaMAForCausalLM", "LlamaModel"}}},
      .has = kLlamaLayers,
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries},
      .also = has_whole_heads,
      .names = joined({embedding_and_head(), pre_norms(), attention(), gated_mlp()}),
      .read = read_llama,
      .write = write_llama};
  return kFamily;
}

}  // namespace colonnade::models::hf
