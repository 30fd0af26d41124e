// Gemma 2: Llama with zero-centered norm weights, sandwich norms, scaled embeddings, GeGLU, sliding windows
// in any layers, soft caps on attention scores and logits.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/gemma.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_gemma2(const ReadContext& r) {
  const GemmaLayers layers = read_gemma(r, {.sizes = {256000, 2304, 9216, 26, 8, 4, 8192, 256, 1e-6, true},
                                            .window_pattern = 2,
                                            .default_logit_cap = 30.0});
  r.settings["attn_logit_softcapping"] = read_cap(r.keys, "attn_logit_softcapping", 50);
  read_positions(r.keys, {.theta = 1e4, .max_position_embeddings = layers.sizes.max_positions}, r.faults,
                 r.settings);
}

}  // namespace

const Family& gemma2() {
  static const Family kFamily = {
      .types = {{"gemma2", {"Gemma2ForCausalLM", "Gemma2Model"}}},
      .has = kGemmaLayers,
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kWindow, Feature::kSomeWindows,
                                           Feature::kScoreCap, Feature::kLogitCap},
      .also = has_gemma_sizes,
      .names = joined({embedding_and_head(), sandwich_norms(), attention(), gated_mlp()}),
      .read = read_gemma2,
      .write = gemma_config};
  return kFamily;
}

}  // namespace colonnade::models::hf
