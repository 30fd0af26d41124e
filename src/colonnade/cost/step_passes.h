// What the forward and backward passes of a step take on the clock of their schedule, whatever data ranks
// share: a search puts many ways of sharing on top of one.
#pragma once

#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/cost/hardware.h"
#include "colonnade/cost/work_time.h"
#include "colonnade/schedule/clock.h"

namespace colonnade::cost {

struct StepPasses {
  std::vector<StageTime> stages;  ///< of one micro-batch, by virtual stage
  schedule::PipelineTimes pipeline;
  PassTime most;  ///< of all micro-batches, of the rank that has most
};

/// Throws ConfigError where the mesh, the stages or the schedule of the settings do.
StepPasses step_passes(const config::Run& run, const Hardware& hardware, const Execution& execution,
                       schedule::KnownSchedules& schedules);

}  // namespace colonnade::cost
