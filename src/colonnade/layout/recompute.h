// Activation recomputation: which layers and modules are recomputed. Used by the model and by memory, traffic
// and time estimates.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/stages.h"

namespace colonnade::layout {

/// Recomputed spans of a virtual stage with `layers` layers under full recomputation: the number of layers in
/// each, from the first layer on. Activations of the remaining layers are saved; without full recomputation
/// of all.
///   uniform N   N, N, ..., and the remainder
///   block N     1, N times
std::vector<std::int64_t> recompute_spans(const config::Recompute& recompute, std::int64_t layers);

/// Whether an MTP layer with its projection is recomputed, as a span of its own: with the uniform method.
bool recomputes_mtp_layers(const config::Recompute& recompute);

/// Number of dense and MoE layers of a stage.
struct LayerCounts {
  std::int64_t dense = 0, experts = 0;
};
LayerCounts layers_of(const config::Model& model, const StageBlocks& stage);
/// Recomputed layers of a stage.
LayerCounts recomputed_layers(const config::Run& run, const StageBlocks& stage);
/// The same with the MTP layers, which follow the final norm.
LayerCounts layers_with_mtp(const config::Model& model, const StageBlocks& stage);
LayerCounts recomputed_layers_with_mtp(const config::Run& run, const StageBlocks& stage);

/// Whether the autograd graph holds the micro-batch until backward, because recomputed modules read it.
bool graph_keeps_batch(const config::Run& run);

}  // namespace colonnade::layout
