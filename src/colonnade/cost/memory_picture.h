// Pictures of the memory plan: a bar per pipeline rank, divided by contents at the peak of a step, and the
// peak of each phase of a run.
#pragma once

#include <string>
#include <vector>

#include "colonnade/cost/memory.h"

namespace colonnade::cost {

/// One line per rank of at most 64 characters; the longest bar is that of the rank with most memory:
///   rank 0   |wwgggoooooaaaaax            | 12.3 GiB
/// and a legend. Parts that are zero on all ranks are left out.
std::string memory_bars(const std::vector<StageMemory>& plan);

/// The same as SVG. Lines across a bar mark the peaks of the other phases: start-up, optimizer, evaluation.
/// Titles hold the numbers.
std::string memory_svg(const std::vector<StageMemory>& plan);

}  // namespace colonnade::cost
