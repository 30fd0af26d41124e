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
  bool by_kind = false;  ///< one block per layer type, of which Transformers reads fewer keys
};

/// Reads rotary settings. Faults: conflicting blocks, bases or original context lengths, and unsupported
/// scaling types or factors.
void read_positions(Keys& keys, const RopeDefaults& defaults, Faults& faults, Settings& settings);

/// Gemma 3: one unscaled base for sliding-window layers and one for the others. `windows`: whether any layer
/// has a window.
void read_gemma3_positions(Keys& keys, const RopeDefaults& defaults, bool windows, Faults& faults,
                           Settings& settings);

}  // namespace colonnade::models::hf
