// Which layers and modules the backward pass recomputes; model, memory plan, traffic and time read it here.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/stages.h"

namespace colonnade::layout {

/// Full recomputation of a virtual stage with `layers` layers: how many are made again together, the first
/// ones first. Layers behind their sum are kept; without full recomputation all are.
///   uniform N   N, N, ..., and what is left
///   block N     1, N times
std::vector<std::int64_t> stretches_made_again(const config::Recompute& recompute, std::int64_t layers);

/// Whether the layer of a further token, with the projection before it, is made again as a whole: as a
/// stretch of its own, with the uniform method.
bool makes_predictions_again(const config::Recompute& recompute);

/// Layers of a stage, of each kind, and those of them that are made again as a whole.
struct LayerCounts {
  std::int64_t dense = 0, experts = 0;
};
LayerCounts layers_of(const config::Model& model, const StageBlocks& stage);
LayerCounts layers_made_again(const config::Run& run, const StageBlocks& stage);
/// The same with the layers of further tokens, behind the final norm.
LayerCounts layers_with_predictions(const config::Model& model, const StageBlocks& stage);
LayerCounts layers_made_again_with_predictions(const config::Run& run, const StageBlocks& stage);

/// Whether a graph holds its micro-batch until its backward pass, because parts that are made again read it.
bool keeps_batches(const config::Run& run);

}  // namespace colonnade::layout
