// Duration of a schedule with different stage costs. Like schedule::simulate, but with a cost per stage,
// without a timeline, and fast enough for a search.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/config/parallel.h"
#include "colonnade/schedule/releases.h"

namespace colonnade::schedule {

/// Cost of one micro-batch on one virtual stage, in seconds.
struct StageCost {
  double forward = 0, backward = 0;
  double weight = 0;   ///< share of `backward` for weight gradients, if computed separately
  double message = 1;  ///< size of its output (and the output gradient) relative to one transfer
  /// Parts of `forward` and `backward` that a pair (starts_pair) hides in the other pass.
  double hidden_forward = 0, hidden_backward = 0;
};

/// Times of a model chunk within a step.
struct ChunkTimes {
  double first_forward_end = 0;    ///< from the start of the step
  double last_backward_begin = 0;  ///< until the end of the step
  double last_backward_end = 0;    ///< until the end of the step
  double hidden = 0;               ///< sum of what pairs hide of its passes
};

struct PipelineTimes {
  double makespan = 0;
  std::vector<std::vector<ChunkTimes>> chunks;  ///< [rank][chunk]
};

/// Times of a schedule under the model of schedule::simulate. `costs` by virtual stage. Throws Error on a
/// deadlock.
PipelineTimes pipeline_times(const Schedule& schedule, const std::vector<StageCost>& costs, double transfer);

/// Cache of checked schedules; a search needs few of them many times.
class ScheduleCache {
 public:
  /// Checked schedule of make_schedule. Throws Error if it is invalid.
  const CheckedSchedule& get(const config::Parallel& parallel, int chunks, int microbatches);

 private:
  std::map<std::pair<std::string, std::array<int, 6>>, CheckedSchedule> known_;
};

/// Number of micro-batches (at most `microbatches`) after which each additional group takes the same time and
/// memory: enough to fill the pipeline four times.
int steady_state_microbatches(const config::Parallel& parallel, int chunks, int microbatches);

/// Step times under the schedule of the settings: simulated up to the steady state, then extrapolated by the
/// last group. Also valid for GPipe.
PipelineTimes step_times(ScheduleCache& schedules, const config::Parallel& parallel, int chunks,
                         int microbatches, const std::vector<StageCost>& costs, double transfer);

}  // namespace colonnade::schedule
