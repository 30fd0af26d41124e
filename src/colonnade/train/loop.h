// The training loop: data, step, evaluation, checkpoints, logging and stopping.
#pragma once

#include <chrono>

#include "colonnade/base/stop_signal.h"
#include "colonnade/job/start.h"

namespace colonnade::train {

/// Trains until the last iteration. Returns the exit code: kExitDone, or kExitStopped when a signal or
/// --exit-duration-in-mins ended the run after a save. Resumes from --load where it holds a checkpoint. A
/// save that fails is reported, and training continues with the last good checkpoint. Before the first step a
/// signal of `stop` ends the process at once; after all ranks are ready, it is remembered until the end of a
/// step. The run time counts from `begin`. Collective over the world.
int pretrain(job::StartedRun started, StopSignals& stop,
             std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now());

}  // namespace colonnade::train
