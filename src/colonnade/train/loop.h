// The training loop: data, step, evaluation, checkpoints, what is shown, and when to stop.
#pragma once

#include <chrono>

#include "colonnade/base/stop_signal.h"
#include "colonnade/job/start.h"

namespace colonnade::train {

/// Trains until the last iteration. Returns the exit code: kExitDone, or kExitStopped when a signal or
/// --exit-duration-in-mins ended the run after a save. Resumes from --load where it holds a
/// checkpoint; a save that fails is reported and training goes on with the last good checkpoint.
/// Before the first step `stop` ends the process by itself; then, when all ranks are there, it is told
/// to remember. The time of the run counts from `begin`. Collective over the world.
int pretrain(job::Started started, StopSignals& stop,
             std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now());

}  // namespace colonnade::train
