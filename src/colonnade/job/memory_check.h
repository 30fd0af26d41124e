// Checks that a run fits the memory of its machine before anything is built: the operating system kills a
// process that uses too much without an error message.
#pragma once

#include <cstdint>

#include "colonnade/config/run.h"
#include "colonnade/rules/rules.h"

namespace colonnade::job {

/// Throws ConfigError when `local_ranks` of the run's ranks need more than `memory` bytes by the plan
/// (cost/memory.h), averaged over all ranks so that equal machines agree. With Purpose::kModel only weights
/// count. A `memory` of 0 disables the check. `run` is complete and checked.
void require_memory(const config::Run& run, rules::Purpose purpose, int local_ranks, std::int64_t memory);

}  // namespace colonnade::job
