// Pictures of the memory plan: a bar for each pipeline rank, parted by what lies there at the fullest moment
// of a step, and the peak of each phase of a run.
#pragma once

#include <string>
#include <vector>

#include "colonnade/cost/memory.h"

namespace colonnade::cost {

/// One line a rank of at most 64 signs, the longest bar the fullest rank's:
///   rank 0   |wwgggoooooaaaaax            | 12.3 GiB
/// and what the letters stand for. Parts that no rank has are left out.
std::string memory_bars(const std::vector<StageMemory>& plan);

/// The same as SVG. Lines across a rank's bar are the peaks of its other phases: start-up, optimizer,
/// evaluation. Numbers are in the titles.
std::string memory_svg(const std::vector<StageMemory>& plan);

}  // namespace colonnade::cost
