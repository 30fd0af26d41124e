// What distinguishes the layers of a model for their costs.
#pragma once

#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/layout/layer_kind.h"

namespace colonnade::cost {

/// Layers with equal traits have equal costs.
struct LayerTraits {
  layout::LayerKind kind;
  bool in_encoder = false;               ///< processes the encoder's sequence
  bool ends_encoder = false;             ///< ends with a norm
  bool bidirectional = false;            ///< layout::is_bidirectional
  std::int64_t window = 0;               ///< layout::attention_window
  layout::LayerContextParallel context;  ///< context-parallel groups; trivial without context parallelism
  auto operator<=>(const LayerTraits&) const = default;
};

/// Traits of all layers, and at the end those of a layer past the last one, in a kMtpLayer.
std::vector<LayerTraits> layer_traits(const config::Run& run);

}  // namespace colonnade::cost
