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
  std::size_t sequence = 0;    ///< number of the sequence that it processes (Sequences)
  bool ends_sequence = false;  ///< last layer of a sequence that later layers read; ends with a norm
  bool bidirectional = false;  ///< layout::is_bidirectional
  std::int64_t window = 0;     ///< layout::attention_window
  bool rope = false;           ///< layout::has_rope
  layout::LayerContextParallel context;  ///< context-parallel groups; trivial without context parallelism
  auto operator<=>(const LayerTraits&) const = default;
};

/// Traits of all layers, and at the end those of a layer past the last one, in a kMtpLayer.
std::vector<LayerTraits> layer_traits(const config::Run& run);

}  // namespace colonnade::cost
