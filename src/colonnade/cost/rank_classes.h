// Equivalence classes of ranks, so that a dry run needs one rank of each class.
#pragma once

#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::cost {

/// Class of every rank, numbered from 0 in the order of first ranks. Ranks of a class perform the same
/// training step: all that their positions in the mesh (layout::Mesh) determine is equal:
///   their stages;
///   for each parameter the shape of the shard, the lengths of its parts, the number of ranks that hold each
///   part, and whether the rank is the one that counts it;
///   for each bucket shard that they update whether it holds parameters, padding or both, the total number of
///   elements, and whether the rank counts them for its replicas;
///   KV blocks that their queries attend to, in order, with repeats collapsed except the last, and which of
///   two ring neighbours sends first; rows dispatched to them, relative to the mean.
/// Their communication peers differ. The run must be complete and valid.
std::vector<int> rank_classes(const config::Run& run);

}  // namespace colonnade::cost
