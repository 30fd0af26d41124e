// Pipeline times: equal to the simulator for equal stages, computed by hand for different ones, and
// extrapolated from few micro-batches.
#include "colonnade/schedule/clock.h"

#include <gtest/gtest.h>

#include "colonnade/base/error.h"

namespace colonnade::schedule {
namespace {

std::vector<StageCost> equal(int stages, double forward, double backward) {
  return {static_cast<std::size_t>(stages), StageCost{forward, backward, backward / 2}};
}

config::Parallel pipeline(int ranks) {
  config::Parallel p;
  p.pipeline_model_parallel_size = ranks;
  return p;
}

TEST(PipelineTime, EqualStagesMatchTheSimulator) {
  for (const Schedule& s :
       {gpipe(4, 7), one_f_one_b(4, 9), interleaved(4, 3, 8, 4), one_f_one_b(1, 3), zb_h1(4, 9), zb_v(4, 9),
        dualpipe_v(3, 8), with_delayed_wgrad(one_f_one_b(3, 5))}) {
    for (const double transfer : {0.0, 0.25}) {
      const double expected = simulate(s, {.forward = 1, .backward = 2, .transfer = transfer}).makespan;
      EXPECT_DOUBLE_EQ(pipeline_times(s, equal(s.stages(), 1, 2), transfer).makespan, expected) << s.kind;
    }
  }
}

TEST(PipelineTime, TheSlowestStageDeterminesTheTime) {
  // Two stages, three micro-batches, the second stage twice as slow: 1 before, 3 * (2 + 4), 2 after.
  const PipelineTimes times = pipeline_times(one_f_one_b(2, 3), {{1, 2}, {2, 4}}, 0);
  EXPECT_DOUBLE_EQ(times.makespan, 1 + 3 * 6 + 2);
  EXPECT_DOUBLE_EQ(times.chunks[0][0].first_forward_end, 1);
  EXPECT_DOUBLE_EQ(times.chunks[1][0].first_forward_end, 3);
  EXPECT_DOUBLE_EQ(times.chunks[0][0].last_backward_begin, 2);
  EXPECT_DOUBLE_EQ(times.chunks[0][0].last_backward_end, 0);
  EXPECT_DOUBLE_EQ(times.chunks[1][0].last_backward_end, 2);
}

TEST(PipelineTime, LongerMessagesTakeLonger) {
  // One micro-batch through three stages and back: the message after the second one takes 5 transfers each
  // way.
  const std::vector<StageCost> costs{{1, 2}, {.forward = 1, .backward = 2, .message = 5}, {1, 2}};
  EXPECT_DOUBLE_EQ(pipeline_times(one_f_one_b(3, 1), costs, 0.5).makespan, 3 * 3 + 2 * 0.5 * (1 + 5));
}

// One rank, three micro-batches: F0, F1 with B0, F2 with B1, B2. Only the two pairs hide communication.
TEST(PipelineTime, PairsHideCommunication) {
  const std::vector<StageCost> costs{
      {.forward = 3, .backward = 5, .hidden_forward = 0.5, .hidden_backward = 0.25}};
  const PipelineTimes times = pipeline_times(one_f_one_b(1, 3, /*paired=*/true), costs, 0);
  EXPECT_DOUBLE_EQ(times.makespan, 3 * (3 + 5) - 2 * (0.5 + 0.25));
  EXPECT_DOUBLE_EQ(times.chunks[0][0].hidden, 2 * (0.5 + 0.25));
  EXPECT_DOUBLE_EQ(times.chunks[0][0].last_backward_begin, 5);
  const PipelineTimes alone = pipeline_times(one_f_one_b(1, 3), costs, 0);
  EXPECT_DOUBLE_EQ(alone.makespan, 3 * (3 + 5));
  EXPECT_DOUBLE_EQ(alone.chunks[0][0].hidden, 0);
}

TEST(PipelineTime, LongRunsHideWhatTheirPairsHide) {
  ScheduleCache schedules;
  for (const auto& [ranks, chunks] : {std::pair{1, 1}, {4, 1}, {4, 3}}) {
    config::Parallel p = pipeline(ranks);
    p.overlap_moe_expert_parallel_comm = true;
    std::vector<StageCost> costs = equal(ranks * chunks, 1, 2);
    for (StageCost& cost : costs) cost.hidden_forward = 0.2, cost.hidden_backward = 0.1;
    const PipelineTimes exact = pipeline_times(schedules.get(p, chunks, 48).schedule, costs, 0.1);
    const PipelineTimes extrapolated = step_times(schedules, p, chunks, 48, costs, 0.1);
    EXPECT_NEAR(extrapolated.makespan / exact.makespan, 1, 0.002) << ranks << " ranks, " << chunks;
    for (std::size_t r = 0; r < exact.chunks.size(); ++r) {
      double seen = 0, expected = 0;
      for (const ChunkTimes& chunk : extrapolated.chunks[r]) seen += chunk.hidden;
      for (const ChunkTimes& chunk : exact.chunks[r]) expected += chunk.hidden;
      EXPECT_NEAR(seen, expected, 1e-9) << "rank " << r;
      EXPECT_GT(expected, 0);
    }
  }
}

TEST(PipelineTime, ShortRunsExtrapolateToLongOnes) {
  ScheduleCache schedules;
  for (const auto& [ranks, chunks] : {std::pair{4, 1}, {4, 3}, {6, 2}, {8, 1}}) {
    std::vector<StageCost> costs = equal(ranks * chunks, 1, 2);
    costs.front() = {1.3, 2.4};
    costs.back() = {1.7, 3.1};
    for (const int microbatches : {3 * ranks, 16 * ranks, 25 * ranks}) {
      const double exact =
          pipeline_times(schedules.get(pipeline(ranks), chunks, microbatches).schedule, costs, 0.1).makespan;
      const double extrapolated =
          step_times(schedules, pipeline(ranks), chunks, microbatches, costs, 0.1).makespan;
      EXPECT_NEAR(extrapolated / exact, 1, 0.002)
          << ranks << " ranks, " << chunks << " chunks, " << microbatches;
    }
  }
  for (const auto& [schedule, chunks] : {std::pair{"zb-h1", 1}, {"zb-v", 2}, {"dualpipe-v", 2}}) {
    config::Parallel p = pipeline(4);
    p.pipeline_schedule = schedule;
    std::vector<StageCost> costs = equal(4 * chunks, 1, 2);
    costs.front() = {1.3, 2.4, 1.1};
    costs.back() = {1.7, 3.1, 1.5};
    const auto& full = schedules.get(p, chunks, 100);
    EXPECT_NEAR(step_times(schedules, p, chunks, 100, costs, 0.1).makespan /
                    pipeline_times(full.schedule, costs, 0.1).makespan,
                1, 0.002)
        << schedule;
    const auto& steady = schedules.get(p, chunks, steady_state_microbatches(p, chunks, 100));
    EXPECT_EQ(steady.report.peak_in_flight, full.report.peak_in_flight) << schedule << ": same peak";
  }
  EXPECT_EQ(steady_state_microbatches(pipeline(4), 1, 1000), 17);
  EXPECT_EQ(steady_state_microbatches(pipeline(4), 1, 12), 12);
}

TEST(PipelineTime, RejectsWrongNumberOfCosts) {
  EXPECT_THROW(pipeline_times(one_f_one_b(2, 2), equal(3, 1, 1), 0), Error);
}

}  // namespace
}  // namespace colonnade::schedule
