// Reads rotary positions from config.json: rope_theta, rope_scaling (Transformers 4) and rope_parameters
// (Transformers 5). Private to models/hf.
#pragma once

#include "colonnade/models/hf/keys.h"

namespace colonnade::models::hf {

/// Defaults of a family's configuration class.
struct RopeDefaults {
  double theta = 10000;
  std::int64_t max_position_embeddings = 0;         ///< default of original_max_position_embeddings
  nlohmann::json block = nlohmann::json::object();  ///< default of rope_parameters
  std::optional<double> partial = {};   ///< default of partial_rotary_factor; nothing: full heads only
  bool longrope = false;                ///< whether the class has LongRoPE
  std::optional<double> local = 10000;  ///< base of sliding-window layers; nothing: that of the others
  bool by_kind = false;                 ///< one block per layer type, of which Transformers reads fewer keys
};

/// YaRN's factor on cosines and sines, (1 + 0.1 mscale ln factor) / (1 + 0.1 mscale_all_dim ln factor).
double yarn_attention_factor(double factor, double mscale, double mscale_all_dim);

/// Reads rotary settings. Faults: conflicting blocks, bases or original context lengths, and unsupported
/// scaling types or factors.
void read_positions(Keys& keys, const RopeDefaults& defaults, Faults& faults, Settings& settings);

/// One unscaled base for sliding-window layers and one for the others (Gemma 3, OLMo 3). `windows`: whether
/// any layer has a window.
void read_positions_by_kind(Keys& keys, const RopeDefaults& defaults, bool windows, Faults& faults,
                            Settings& settings);

}  // namespace colonnade::models::hf
