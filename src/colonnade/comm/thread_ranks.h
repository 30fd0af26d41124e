// Ranks simulated by threads of one process, for tests.
#pragma once

#include <chrono>
#include <functional>

#include "colonnade/comm/communicators.h"
#include "colonnade/config/parallel.h"

namespace colonnade::comm {

/// Runs `body` once per rank of `parallel` (world_size ranks), each on its own thread with one OpenMP thread,
/// and returns when all have finished. Groups use shared memory: a collective is two barriers with direct
/// reads in between, summed in rank order, so results are bitwise identical on every run and rank. Calls that
/// return a Work run immediately, except recv, which runs in wait(). Outputs are NaN until wait(), and a
/// tensor that changes between send and its wait() is an Error, so a missing wait fails in every run.
///
/// An exception in one rank aborts the waits of the others with CommError and is rethrown here. A rank that
/// waits for a finished rank, or longer than `timeout`, gets a CommError naming it; ranks that call different
/// collectives get an Error naming both. Throws ConfigError like layout::Mesh.
void run_ranks(const config::Parallel& parallel, const std::function<void(Communicators&)>& body,
               std::chrono::milliseconds timeout = std::chrono::seconds(60));

/// Pure data parallelism over `world` ranks.
void run_ranks(int world, const std::function<void(Communicators&)>& body,
               std::chrono::milliseconds timeout = std::chrono::seconds(60));

}  // namespace colonnade::comm
