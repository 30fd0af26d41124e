// How long a schedule takes whose stages differ: what schedule::simulate does with one cost for all, without
// the picture, and fast enough for a search.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/config/parallel.h"
#include "colonnade/schedule/releases.h"

namespace colonnade::schedule {

/// Of one micro-batch on one virtual stage, in seconds.
struct StageCost {
  double forward = 0, backward = 0;
  double weight = 0;   ///< of the backward pass: the gradients of weights, where they come apart
  double message = 1;  ///< transfers that its output, and the gradient that answers it, are as long as
};

/// By pipeline rank and chunk.
struct ChunkTimes {
  double first_forward_end = 0;    ///< from the begin of the step
  double last_backward_begin = 0;  ///< before the end of the step
  double last_backward_end = 0;    ///< the same
};

struct PipelineTimes {
  double makespan = 0;
  std::vector<std::vector<ChunkTimes>> chunks;  ///< [rank][chunk]
};

/// As schedule::simulate: every rank works as soon as it can, transfers occupy nobody. `costs` by virtual
/// stage. Throws Error when the schedule does not end.
PipelineTimes pipeline_times(const Schedule& schedule, const std::vector<StageCost>& costs, double transfer);

/// Schedules that were asked for before, each proven sound: a search asks for few of them many times.
class KnownSchedules {
 public:
  /// As make_schedule. Throws Error when it is not sound.
  const SoundSchedule& of(const config::Parallel& parallel, int chunks, int microbatches);

 private:
  std::map<std::pair<std::string, std::array<int, 5>>, SoundSchedule> known_;
};

/// A number of micro-batches, at most `microbatches`, after which each further group of them takes equally
/// long and keeps no more alive: as many as fill the pipeline four times.
int steady_microbatches(const config::Parallel& parallel, int chunks, int microbatches);

/// The times of the schedule of the settings with `microbatches`: run on the clock up to the steady number,
/// each further group as long as the last one. GPipe's, too.
PipelineTimes times_of_step(KnownSchedules& schedules, const config::Parallel& parallel, int chunks,
                            int microbatches, const std::vector<StageCost>& costs, double transfer);

}  // namespace colonnade::schedule
