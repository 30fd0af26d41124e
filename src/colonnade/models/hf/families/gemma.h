// Gemma 2 and the text model of Gemma 3, which share most keys. Private to models/hf.
#pragma once

#include "colonnade/models/hf/families/decoder.h"

namespace colonnade::models::hf {

inline constexpr Features kGemmaLayers = {
    Feature::kRmsNorm, Feature::kZeroCenteredNorm, Feature::kSandwichNorm, Feature::kGegluTanh,
    Feature::kRotary,  Feature::kScaledEmbeddings, Feature::kScoreScale};

/// What differs in config.json.
struct GemmaKeys {
  SizeDefaults sizes;
  std::int64_t window_pattern;              ///< without layer_types, all but every such layer has a window
  std::optional<double> default_logit_cap;  ///< of the final logits
};
/// What reading yields besides settings.
struct GemmaLayers {
  Sizes sizes;
  bool windows = false;  ///< whether any layer has one
};
/// Reads all but rotary positions and the cap on attention scores.
GemmaLayers read_gemma(const ReadContext& r, const GemmaKeys& keys);

/// A cap of logits or scores, 0 for none.
std::string read_cap(Keys& keys, const char* key, std::optional<double> default_value);

nlohmann::json gemma_config(const config::Model& model);

/// Whether heads and the scale of scores, which is stored as an integer, suit a GemmaConfig.
bool has_gemma_sizes(const config::Model& model);

}  // namespace colonnade::models::hf
