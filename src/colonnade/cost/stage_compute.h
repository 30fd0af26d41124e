// Compute and collectives of one virtual stage for one micro-batch, added up over its blocks
// (blocks/block_cost.h).
#pragma once

#include <vector>

#include "colonnade/cost/model_cost.h"
#include "colonnade/layout/blocks.h"

namespace colonnade::cost {

/// The blocks of a stage with their repetitions, equal layers once; a stage that sends or receives several
/// states per token concatenates them, or their gradients; and recomputed modules.
std::vector<RepeatedCompute> stage_compute(const ModelCost& model, const layout::StageBlocks& stage,
                                           AttentionKernel kernel = AttentionKernel::kUnfused);

}  // namespace colonnade::cost
