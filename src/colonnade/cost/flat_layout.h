// Parameters of a pipeline rank in forward order, and their layout in its flat buffers.
#pragma once

#include <functional>
#include <vector>

#include "colonnade/cost/model_blocks.h"
#include "colonnade/layout/buckets.h"

namespace colonnade::cost {

/// Calls use(spec, unit) for every parameter of a stage, copies of tied embeddings included, in forward
/// order. `unit`: number of the FSDP unit (block) in the stage; a recomputed span of layers is one unit.
/// `first`: first readers on the stage's rank. Returns the number of units.
int for_each_stage_param(const ModelBlocks& model, const layout::StageBlocks& stage,
                         const layout::FirstReaders& first,
                         const std::function<void(const layout::ParamSpec& spec, int unit)>& use);

/// The flat buffers of the rank that holds `stages`.
layout::FlatLayout flat_layout(const ModelBlocks& model, const layout::Mesh& mesh,
                               const std::vector<layout::StageBlocks>& stages);

}  // namespace colonnade::cost
