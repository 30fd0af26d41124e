// Memory while a forward and a backward pass take turns (schedule::starts_pair).
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/cost/model_cost.h"
#include "colonnade/cost/unit_bytes.h"
#include "colonnade/layout/blocks.h"

namespace colonnade::cost {

/// Blocks of a pass that run one after the other, with bytes relative to the start of the pass.
struct PassPart {
  std::int64_t peak = 0;   ///< while they run
  std::int64_t after = 0;  ///< when they are done
  int hand_overs = 0;      ///< waits at which the other pass of a pair continues
};

/// Forward pass: saved activations, in whole blocks. A recomputed span saves its input.
std::vector<PassPart> forward_parts(const ModelCost& model, const layout::StageBlocks& stage);
/// Backward pass, from its last block to the first: workspace, and the release of saved activations. The
/// arguments are those of stage_workspace().
std::vector<PassPart> backward_parts(const ModelCost& model, const layout::StageBlocks& stage,
                                     bool delay_wgrad, const std::vector<UnitBytes>& units);

/// Peak of a pair relative to its start, if the passes alternate at their hand-overs, the backward pass
/// first. An upper bound: a pass that waits counts as at the peak of its part, and a forward pass as if it
/// had saved all activations of the part. For equal layers with two hand-overs each this is the peak of the
/// backward pass and one layer.
std::int64_t pair_peak(const std::vector<PassPart>& forward, const std::vector<PassPart>& backward);

}  // namespace colonnade::cost
