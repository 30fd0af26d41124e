// Time of a step's forward and backward passes, simulated by schedule. It does not depend on data-parallel
// sharding, so a search reuses it for many shardings.
#pragma once

#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/cost/hardware.h"
#include "colonnade/cost/stage_time.h"
#include "colonnade/schedule/clock.h"

namespace colonnade::cost {

struct ForwardBackwardTime {
  std::vector<layout::StageBlocks> blocks;  ///< by virtual stage
  std::vector<StageTime> stages;            ///< times of one micro-batch, by virtual stage
  schedule::PipelineTimes pipeline;
  PassTime busiest;  ///< time of all micro-batches on the busiest rank
};

/// Throws ConfigError if mesh, stages or schedule do.
ForwardBackwardTime forward_backward_time(const ModelCost& model, const Hardware& hardware,
                                          const Execution& execution, schedule::ScheduleCache& schedules);

}  // namespace colonnade::cost
