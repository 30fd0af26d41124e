// Rotary positions in config.json: rope_theta, rope_scaling (Transformers 4) and rope_parameters
// (Transformers 5). Private to models/hf.
#pragma once

#include "colonnade/models/hf/keys.h"

namespace colonnade::models::hf {

/// Values of a family's configuration class.
struct RopeDefaults {
  double theta = 10000;
  std::int64_t max_position_embeddings = 0;  ///< of this model: the old context length where none is named
  nlohmann::json block = nlohmann::json::object();  ///< rope_parameters when the file has no block at all
  bool by_kind = false;  ///< a block for each kind of layer: Transformers reads fewer keys then
};

/// Writes the settings of rotary positions. Faults: two blocks, two bases or two old context lengths that
/// disagree; kinds of scaling, and factors within them, that our models do not have.
void read_positions(Keys& keys, const RopeDefaults& defaults, Faults& faults, Settings& settings);

/// Of Gemma 3: one base for layers with a window, which nothing scales, and one for the others. `windows`:
/// whether any layer has one.
void read_gemma3_positions(Keys& keys, const RopeDefaults& defaults, bool windows, Faults& faults,
                           Settings& settings);

}  // namespace colonnade::models::hf
