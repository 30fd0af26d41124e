// Whether a run fits the memory of its machine, asked before anything is built: the system ends a process
// that takes too much without a word.
#pragma once

#include <cstdint>
#include <filesystem>

#include "colonnade/config/run.h"
#include "colonnade/plan/rules.h"

namespace colonnade::job {

/// Bytes that this process and its neighbours may use: the machine's memory or, where it is less, what the
/// control groups of this process allow (versions 1 and 2); its swap comes on top, as far as the groups
/// allow that. 0 when the system does not say. `root`: the folder that holds proc and sys.
std::int64_t machine_memory(const std::filesystem::path& root = "/");

/// Throws ConfigError when `local_ranks` of the run's ranks need more than `memory` bytes, by the plan
/// (plan/memory.h) and as much as ranks need on average, so that equal machines answer alike. With
/// Purpose::kModel the weights alone count. A `memory` of 0 holds everything. `run` is complete and sound.
void require_memory(const config::Run& run, plan::Purpose purpose, int local_ranks, std::int64_t memory);

}  // namespace colonnade::job
