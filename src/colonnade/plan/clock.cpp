// Runs a schedule on a clock, stage by stage.
#include "colonnade/plan/clock.h"

#include <algorithm>
#include <limits>

#include "colonnade/base/error.h"

namespace colonnade::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Clock {
 public:
  Clock(const Schedule& schedule, const std::vector<StageCost>& costs, double transfer)
      : s_(schedule),
        costs_(costs),
        transfer_(transfer),
        activation_(values(), kNever),
        gradient_(values(), kNever),
        next_(s_.programs.size(), 0),
        now_(s_.programs.size(), 0) {
    const ChunkTimes unseen{.first_forward_end = -1};
    times_.chunks.assign(s_.programs.size(),
                         std::vector<ChunkTimes>(static_cast<std::size_t>(s_.chunks), unseen));
  }

  PipelineTimes run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t rank = 0; rank < s_.programs.size(); ++rank) progress = advance(rank) || progress;
    }
    for (std::size_t rank = 0; rank < s_.programs.size(); ++rank) {
      COL_CHECK(
          next_[rank] == s_.programs[rank].size(),
          "pipeline_times: every rank must reach its end; rank {} stopped at action {} of {}; run check() "
          "on the schedule",
          rank, next_[rank], s_.programs[rank].size());
      times_.makespan = std::max(times_.makespan, now_[rank]);
    }
    for (auto& rank : times_.chunks) {
      for (ChunkTimes& chunk : rank) {
        chunk.last_backward_begin = times_.makespan - chunk.last_backward_begin;
        chunk.last_backward_end = times_.makespan - chunk.last_backward_end;
      }
    }
    return std::move(times_);
  }

 private:
  [[nodiscard]] std::size_t values() const {
    return static_cast<std::size_t>(s_.stages()) * static_cast<std::size_t>(s_.microbatches);
  }
  double& at(std::vector<double>& arrivals, std::size_t stage, const Action& a) {
    return arrivals[stage * static_cast<std::size_t>(s_.microbatches) +
                    static_cast<std::size_t>(a.microbatch)];
  }

  bool advance(std::size_t rank) {
    const std::size_t begin = next_[rank];
    const Program& program = s_.programs[rank];
    while (next_[rank] < program.size() && perform(rank, program[next_[rank]])) ++next_[rank];
    return next_[rank] > begin;
  }

  bool perform(std::size_t rank, const Action& a) {
    const auto stage = static_cast<std::size_t>(s_.stage(static_cast<int>(rank), a));
    double& now = now_[rank];
    ChunkTimes& chunk = times_.chunks[rank][static_cast<std::size_t>(a.chunk)];
    switch (a.act) {
      case Do::kForward:
        now += costs_[stage].forward;
        if (chunk.first_forward_end < 0) chunk.first_forward_end = now;
        break;
      case Do::kBackward:
        chunk.last_backward_begin = now;
        now += costs_[stage].backward;
        chunk.last_backward_end = now;
        break;
      case Do::kBackwardInput:
        now += costs_[stage].backward - costs_[stage].weight;
        break;
      case Do::kBackwardWeight:
        chunk.last_backward_begin = now;
        now += costs_[stage].weight;
        chunk.last_backward_end = now;
        break;
      case Do::kSendActivation:
        at(activation_, stage + 1, a) = now + transfer_;
        break;
      case Do::kSendGradient:
        at(gradient_, stage - 1, a) = now + transfer_;
        break;
      case Do::kRecvActivation:
      case Do::kRecvGradient: {
        const double arrival = at(a.act == Do::kRecvActivation ? activation_ : gradient_, stage, a);
        if (arrival == kNever) return false;
        now = std::max(now, arrival);
        break;
      }
    }
    return true;
  }

  const Schedule& s_;
  const std::vector<StageCost>& costs_;
  double transfer_;
  std::vector<double> activation_, gradient_;
  std::vector<std::size_t> next_;
  std::vector<double> now_;
  PipelineTimes times_;
};

/// Micro-batches that go through the chunks of a rank together.
int group_of(const config::Parallel& parallel, int chunks) {
  if (chunks == 1) return 1;
  const int given = parallel.microbatch_group_size_per_virtual_pipeline_stage;
  return given > 0 ? given : parallel.pipeline_model_parallel_size;
}

}  // namespace

PipelineTimes pipeline_times(const Schedule& schedule, const std::vector<StageCost>& costs, double transfer) {
  COL_CHECK(costs.size() == static_cast<std::size_t>(schedule.stages()),
            "pipeline_times: every virtual stage must have a cost; got {} for {}; correct the caller",
            costs.size(), schedule.stages());
  return Clock(schedule, costs, transfer).run();
}

const KnownSchedules::Known& KnownSchedules::of(const config::Parallel& parallel, int chunks,
                                                int microbatches) {
  const std::pair key(parallel.pipeline_schedule,
                      std::array{parallel.pipeline_model_parallel_size, chunks, microbatches,
                                 parallel.microbatch_group_size_per_virtual_pipeline_stage,
                                 parallel.delay_wgrad_compute ? 1 : 0});
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  Known known{make_schedule(parallel, chunks, microbatches), {}};
  known.report = check(known.schedule);
  COL_CHECK(known.report.faults.empty(), "schedule: must be sound; got {}; correct its function",
            known.report.faults[0]);
  return known_.emplace(key, std::move(known)).first->second;
}

int steady_microbatches(const config::Parallel& parallel, int chunks, int microbatches) {
  const int group = group_of(parallel, chunks);
  const int fill = 4 * std::max(parallel.pipeline_model_parallel_size, group);
  if (microbatches <= fill + group) return microbatches;
  return fill + group + (microbatches - fill) % group;
}

PipelineTimes times_of_step(KnownSchedules& schedules, const config::Parallel& parallel, int chunks,
                            int microbatches, const std::vector<StageCost>& costs, double transfer) {
  const int steady = steady_microbatches(parallel, chunks, microbatches);
  PipelineTimes times = pipeline_times(schedules.of(parallel, chunks, steady).schedule, costs, transfer);
  if (steady == microbatches) return times;
  const int group = group_of(parallel, chunks);
  const auto before =
      pipeline_times(schedules.of(parallel, chunks, steady - group).schedule, costs, transfer);
  times.makespan += (times.makespan - before.makespan) * (microbatches - steady) / group;
  return times;
}

}  // namespace colonnade::plan
