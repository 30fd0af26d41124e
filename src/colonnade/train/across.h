// The numbers of all ranks that a step line needs, and whether one of them is to stop.
#pragma once

#include <cstdint>

#include "colonnade/job/job.h"

namespace colonnade::train {

struct Across {
  bool stop = false;       ///< some rank was asked to
  double step_ms = 0;      ///< of the slowest rank
  double peak_memory = 0;  ///< bytes of the fullest rank
  int peak_rank = 0;
};

/// What all ranks say of a step. Collective over the world.
Across across_ranks(job::Job& job, bool asked, double step_ms, std::uint64_t peak_bytes);

}  // namespace colonnade::train
