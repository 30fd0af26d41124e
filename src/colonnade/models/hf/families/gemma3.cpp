// Gemma 3 (text): Gemma 2 with QK norms instead of the attention soft cap and a separate rotary base for
// sliding-window layers.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/gemma.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_gemma3(const ReadContext& r) {
  const std::int64_t pattern = r.keys.integer("sliding_window_pattern", 6);
  const GemmaLayers layers = read_gemma(r, {.sizes = {262208, 2304, 9216, 26, 8, 4, 131072, 256, 1e-6, true},
                                            .window_pattern = pattern,
                                            .default_logit_cap = std::nullopt});
  r.settings["qk_layernorm"] = "true";
  r.keys.only("attn_logit_softcapping", {});  // Transformers reads it and does not apply it
  read_gemma3_positions(
      r.keys, {.theta = 1e6, .max_position_embeddings = layers.sizes.max_positions, .by_kind = true},
      layers.windows, r.faults, r.settings);
}

nlohmann::json write_gemma3(const config::Model& m) {
  nlohmann::json c = gemma_config(m);
  c["rope_local_base_freq"] = m.rotary_base_local.value_or(10000);
  return c;
}

/// The class rounds YaRN's correction range to integers, whatever config.json says.
bool is_gemma3(const config::Model& m) {
  const bool rounds = !m.uses_yarn() || m.yarn_correction_range_round_to_int;
  return has_gemma_sizes(m) && rounds && (m.rotary_base_local || m.window_size == 0);
}

}  // namespace

const Family& gemma3() {
  static const Family kFamily = {
      .types = {{"gemma3_text", {"Gemma3ForCausalLM", "Gemma3TextModel"}}},
      .has = kGemmaLayers | Features{Feature::kQkNorm},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kWindow, Feature::kSomeWindows,
                                           Feature::kLocalBase, Feature::kLogitCap},
      .also = is_gemma3,
      .names = joined({embedding_and_head(), sandwich_norms(), attention(), qk_norms(), gated_mlp()}),
      .read = read_gemma3,
      .write = write_gemma3};
  return kFamily;
}

}  // namespace colonnade::models::hf
