// Whether a run fits the memory of its machine, asked before anything is built: the system ends a process
// that takes too much without a word.
#pragma once

#include <cstdint>

#include "colonnade/config/run.h"
#include "colonnade/rules/rules.h"

namespace colonnade::job {

/// Throws ConfigError when `local_ranks` of the run's ranks need more than `memory` bytes, by the plan
/// (cost/memory.h) and as much as ranks need on average, so that equal machines answer alike. With
/// Purpose::kModel the weights alone count. A `memory` of 0 holds everything. `run` is complete and sound.
void require_memory(const config::Run& run, rules::Purpose purpose, int local_ranks, std::int64_t memory);

}  // namespace colonnade::job
