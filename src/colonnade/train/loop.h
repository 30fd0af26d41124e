// The training loop: data, step, evaluation, checkpoints, what is shown, and when to stop.
#pragma once

#include "colonnade/job/start.h"

namespace colonnade::train {

/// Trains until the last iteration. Returns the exit code: kExitDone, or kExitStopped when a signal or
/// --exit-duration-in-mins ended the run after a save. Resumes from --load where it holds a
/// checkpoint; a save that fails is reported and training goes on with the last good checkpoint.
/// Collective over the world.
int pretrain(job::Started started);

}  // namespace colonnade::train
