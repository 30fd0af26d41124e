// Activation recomputation: which layers and modules are recomputed. Used by the model and by memory, traffic
// and time estimates.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::layout {

/// Recomputed spans of a virtual stage with `layers` layers under full recomputation: the number of layers in
/// each, from the first layer on. Activations of the remaining layers are saved; without full recomputation
/// of all.
///   uniform N   N, N, ..., and the remainder
///   block N     1, N times
std::vector<std::int64_t> recompute_spans(const config::Recompute& recompute, std::int64_t layers);
/// Number of layers in these spans.
std::int64_t recomputed_layers(const config::Recompute& recompute, std::int64_t layers);

/// Whether an MTP layer with its projection is recomputed, as a span of its own: with the uniform method.
bool recomputes_mtp_layers(const config::Recompute& recompute);

/// Whether the autograd graph holds the micro-batch until backward, because recomputed modules read it.
bool graph_keeps_batch(const config::Run& run);

}  // namespace colonnade::layout
