// Threads that stand in for ranks: a parallel test is as small as a serial one.
#pragma once

#include <chrono>
#include <functional>

#include "colonnade/comm/communicators.h"
#include "colonnade/config/parallel.h"

namespace colonnade::comm {

/// Runs `body` once per rank of `parallel` (world_size ranks), each on a thread of its own with one
/// OpenMP thread, and returns when all have ended. Groups are shared memory: a collective is two
/// barriers and direct reads, summed in rank order, so results are equal bits on every run and rank.
/// Calls that return a Work run at once, except recv, which runs in wait(); but outputs are NaN until wait(),
/// and a tensor that changes between send and its wait() is an Error, so a missing wait shows in every run.
///
/// An exception in one rank ends the waits of the others with CommError and is rethrown here. A rank
/// that waits for one that has ended, or longer than `timeout`, gets CommError naming it; ranks that
/// call different collectives get Error naming both. Throws ConfigError as layout::Mesh does.
void run_ranks(const config::Parallel& parallel, const std::function<void(Communicators&)>& body,
               std::chrono::milliseconds timeout = std::chrono::seconds(60));

/// `world` ranks, all of them on the data axis.
void run_ranks(int world, const std::function<void(Communicators&)>& body,
               std::chrono::milliseconds timeout = std::chrono::seconds(60));

}  // namespace colonnade::comm
