// Gemma 3, of which the text model is read: Gemma 2 with QK norms instead of the attention soft cap and a
// separate rotary base for sliding-window layers.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/gemma.h"
#include "colonnade/models/hf/families/list.h"
#include "colonnade/models/hf/known_keys.h"

namespace colonnade::models::hf {
namespace {

void read_gemma3_text(const ReadContext& r) {
  const std::int64_t pattern = r.keys.integer("sliding_window_pattern", 6);
  const GemmaLayers layers = read_gemma(r, {.sizes = {262208, 2304, 9216, 26, 8, 4, 131072, 256, 1e-6, true},
                                            .window_pattern = pattern,
                                            .default_logit_cap = std::nullopt});
  r.settings["qk_layernorm"] = "true";
  r.keys.only("attn_logit_softcapping", {});  // Transformers reads it and does not apply it
  read_positions_by_kind(
      r.keys, {.theta = 1e6, .max_position_embeddings = layers.sizes.max_positions, .by_kind = true},
      layers.windows, r.faults, r.settings);
}

/// The text model alone, or that of a model that reads images too.
void read_gemma3(const ReadContext& r) {
  if (r.type != "gemma3") return read_gemma3_text(r);
  const nlohmann::json inner = r.keys.object("text_config");
  Keys keys(inner, "text_config.", r.faults);
  keys.only("model_type", {"gemma3_text"});
  read_gemma3_text({"gemma3_text", keys, r.faults, r.settings, r.tensors});
  ignore_neutral_keys(keys);
  keys.reject_unknown();
  if (const bool untied = r.settings["untie_embeddings_and_output_weights"] == "true")
    r.keys.only("tie_word_embeddings", {!untied});
  static constexpr std::string_view kImageKeys[] = {
      "vision_config",     "mm_tokens_per_image", "boi_token_index",     "eoi_token_index",
      "image_token_index", "initializer_range",   "tie_word_embeddings", "image_token_id"};
  r.keys.ignore(kImageKeys);
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
      .types = {{"gemma3_text", {"Gemma3ForCausalLM", "Gemma3TextModel"}},
                {"gemma3", {"Gemma3ForConditionalGeneration", "Gemma3Model"}}},
      .has = kGemmaLayers | Features{Feature::kQkNorm},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kWindow, Feature::kSomeWindows,
                                           Feature::kLocalBase, Feature::kLogitCap},
      .also = is_gemma3,
      .names = joined({embedding_and_head(), sandwich_norms(), attention(), qk_norms(), gated_mlp()}),
      .read = read_gemma3,
      .write = write_gemma3,
      .unused = {{"vision_tower.", "", kOfImages},
                 {"model.vision_tower.", "", kOfImages},
                 {"multi_modal_projector.", "", kOfImages},
                 {"model.multi_modal_projector.", "", kOfImages}}};
  return kFamily;
}

}  // namespace colonnade::models::hf
