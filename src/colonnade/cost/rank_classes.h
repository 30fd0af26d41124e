// Which ranks of a run do the same, so that one of them stands for all in a dry run.
#pragma once

#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::cost {

/// By rank the number of its class, from 0 in the order of their first ranks. Nothing that a training step
/// does depends on where two ranks of a class differ. All that their places in the mesh (layout::Mesh) give
/// them is the same:
///   their stages;
///   of each parameter there the shape of the shard, how long its parts are, how many ranks hold each of them
///   and whether they are the one that counts it;
///   of each bucket's part that they update whether it is parameters, filling or both, how many elements all
///   of them are, and whether they count them for their replicas;
///   blocks of keys that their queries meet, in their order without repeats but for the last, and who of two
///   neighbours in a ring sends first; rows that their experts receive over the mean.
/// Which ranks they talk to differs. Of a run that is complete and sound.
std::vector<int> rank_classes(const config::Run& run);

}  // namespace colonnade::cost
