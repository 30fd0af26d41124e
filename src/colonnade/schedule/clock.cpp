// See clock.h.
#include "colonnade/schedule/clock.h"

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/schedule/schedule_clock.h"

namespace colonnade::schedule {
namespace {

/// Micro-batch group size per virtual stage.
int group_size(const config::Parallel& parallel, int chunks) {
  if (chunks == 1) return 1;
  const int given = parallel.microbatch_group_size_per_virtual_pipeline_stage;
  return given > 0 ? given : parallel.pipeline_model_parallel_size;
}

/// Seconds of the passes of a chunk that pairs hide.
double hidden_seconds(const Schedule& schedule, const std::vector<StageCost>& costs, int rank, int chunk) {
  const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
  const StageCost& cost = costs[static_cast<std::size_t>(schedule.placement.stage(rank, chunk))];
  double sum = 0;
  for (std::size_t i = 0; schedule.pairs_passes && i < program.size(); ++i) {
    if (!starts_pair(schedule, program, i)) continue;
    if (program[i].chunk == chunk) sum += cost.hidden_forward;
    if (program[i + 1].chunk == chunk) sum += cost.hidden_backward;
  }
  return sum;
}

}  // namespace

PipelineTimes pipeline_times(const Schedule& schedule, const std::vector<StageCost>& costs, double transfer) {
  PipelineTimes times;
  const ChunkTimes unseen{.first_forward_end = -1};
  times.chunks.assign(schedule.programs.size(),
                      std::vector<ChunkTimes>(static_cast<std::size_t>(schedule.chunks), unseen));
  ScheduleClock(schedule, costs, transfer).run([&](int rank, const Action& a, double begin, double end) {
    ChunkTimes& chunk = times.chunks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(a.chunk)];
    times.makespan = std::max(times.makespan, end);
    if (a.kind == ActionKind::kForward && chunk.first_forward_end < 0) chunk.first_forward_end = end;
    if (!completes_backward(a.kind)) return;
    chunk.last_backward_begin = begin;
    chunk.last_backward_end = end;
  });
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (int c = 0; c < schedule.chunks; ++c)
      times.chunks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(c)].hidden =
          hidden_seconds(schedule, costs, rank, c);
  for (auto& rank : times.chunks)
    for (ChunkTimes& chunk : rank) {
      chunk.last_backward_begin = times.makespan - chunk.last_backward_begin;
      chunk.last_backward_end = times.makespan - chunk.last_backward_end;
    }
  return times;
}

const CheckedSchedule& ScheduleCache::get(const config::Parallel& parallel, int chunks, int microbatches) {
  const std::pair key(parallel.pipeline_schedule,
                      std::array{parallel.pipeline_model_parallel_size, chunks, microbatches,
                                 parallel.microbatch_group_size_per_virtual_pipeline_stage,
                                 parallel.delay_wgrad_compute ? 1 : 0, parallel.pairs_passes() ? 1 : 0});
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  return known_.emplace(key, checked(make_schedule(parallel, chunks, microbatches))).first->second;
}

namespace {

/// Micro-batches after which the steady state repeats: pairs of passes alternate with single ones.
int period(const config::Parallel& parallel, int chunks) {
  return group_size(parallel, chunks) * (parallel.pairs_passes() ? 2 : 1);
}

}  // namespace

int steady_state_microbatches(const config::Parallel& parallel, int chunks, int microbatches) {
  const int group = period(parallel, chunks);
  const int fill = 4 * std::max(parallel.pipeline_model_parallel_size, group);
  if (microbatches <= fill + group) return microbatches;
  return fill + group + (microbatches - fill) % group;
}

PipelineTimes step_times(ScheduleCache& schedules, const config::Parallel& parallel, int chunks,
                         int microbatches, const std::vector<StageCost>& costs, double transfer) {
  const int steady = steady_state_microbatches(parallel, chunks, microbatches);
  PipelineTimes times = pipeline_times(schedules.get(parallel, chunks, steady).schedule, costs, transfer);
  if (steady == microbatches) return times;
  const int group = period(parallel, chunks);
  const auto before =
      pipeline_times(schedules.get(parallel, chunks, steady - group).schedule, costs, transfer);
  const double more = static_cast<double>(microbatches - steady) / group;
  times.makespan += (times.makespan - before.makespan) * (microbatches - steady) / group;
  for (std::size_t rank = 0; rank < times.chunks.size(); ++rank)
    for (std::size_t c = 0; c < times.chunks[rank].size(); ++c) {
      double& hidden = times.chunks[rank][c].hidden;
      hidden += (hidden - before.chunks[rank][c].hidden) * more;
    }
  return times;
}

}  // namespace colonnade::schedule
