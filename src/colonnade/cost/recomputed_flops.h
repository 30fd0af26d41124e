// FLOPs of recomputation.
#pragma once

#include <cstdint>

#include "colonnade/config/run.h"
#include "colonnade/cost/flops.h"

namespace colonnade::cost {

/// FLOPs of the recomputed forward passes of `sequences` sequences. Hardware FLOPs are training_flops() plus
/// these.
cost::TrainingFlops recomputed_flops(const ModelCost& model, std::int64_t sequences);

}  // namespace colonnade::cost
