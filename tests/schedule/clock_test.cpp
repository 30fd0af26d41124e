// The clock for stages that differ: equal to the simulator where they do not, by hand where they do, and a
// short run of it stands for a long one.
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

TEST(PipelineTime, EqualStagesTakeAsLongAsTheSimulatorSays) {
  for (const Schedule& s :
       {gpipe(4, 7), one_f_one_b(4, 9), interleaved(4, 3, 8, 4), one_f_one_b(1, 3), zb_h1(4, 9), zb_v(4, 9),
        dualpipe_v(3, 8), with_delayed_weights(one_f_one_b(3, 5))}) {
    for (const double transfer : {0.0, 0.25}) {
      const double expected = simulate(s, {.forward = 1, .backward = 2, .transfer = transfer}).makespan;
      EXPECT_DOUBLE_EQ(pipeline_times(s, equal(s.stages(), 1, 2), transfer).makespan, expected) << s.kind;
    }
  }
}

TEST(PipelineTime, TheSlowestStageSetsThePace) {
  // Two stages, three micro-batches, the second stage twice as slow: 1 in front, 3 * (2 + 4), 2 behind.
  const PipelineTimes times = pipeline_times(one_f_one_b(2, 3), {{1, 2}, {2, 4}}, 0);
  EXPECT_DOUBLE_EQ(times.makespan, 1 + 3 * 6 + 2);
  EXPECT_DOUBLE_EQ(times.chunks[0][0].first_forward_end, 1);
  EXPECT_DOUBLE_EQ(times.chunks[1][0].first_forward_end, 3);
  EXPECT_DOUBLE_EQ(times.chunks[0][0].last_backward_begin, 2);
  EXPECT_DOUBLE_EQ(times.chunks[0][0].last_backward_end, 0);
  EXPECT_DOUBLE_EQ(times.chunks[1][0].last_backward_end, 2);
}

TEST(PipelineTime, LongerMessagesTakeLonger) {
  // One micro-batch down three stages and back: the message behind the second takes 5 transfers each way.
  const std::vector<StageCost> costs{{1, 2}, {.forward = 1, .backward = 2, .message = 5}, {1, 2}};
  EXPECT_DOUBLE_EQ(pipeline_times(one_f_one_b(3, 1), costs, 0.5).makespan, 3 * 3 + 2 * 0.5 * (1 + 5));
}

TEST(PipelineTime, AShortRunStandsForALongOne) {
  KnownSchedules schedules;
  for (const auto& [ranks, chunks] : {std::pair{4, 1}, {4, 3}, {6, 2}, {8, 1}}) {
    std::vector<StageCost> costs = equal(ranks * chunks, 1, 2);
    costs.front() = {1.3, 2.4};
    costs.back() = {1.7, 3.1};
    for (const int microbatches : {3 * ranks, 16 * ranks, 25 * ranks}) {
      const double whole =
          pipeline_times(schedules.of(pipeline(ranks), chunks, microbatches).schedule, costs, 0.1).makespan;
      const double shortened =
          times_of_step(schedules, pipeline(ranks), chunks, microbatches, costs, 0.1).makespan;
      EXPECT_NEAR(shortened / whole, 1, 0.002)
          << ranks << " ranks, " << chunks << " chunks, " << microbatches;
    }
  }
  for (const auto& [schedule, chunks] : {std::pair{"zb-h1", 1}, {"zb-v", 2}, {"dualpipe-v", 2}}) {
    config::Parallel p = pipeline(4);
    p.pipeline_schedule = schedule;
    std::vector<StageCost> costs = equal(4 * chunks, 1, 2);
    costs.front() = {1.3, 2.4, 1.1};
    costs.back() = {1.7, 3.1, 1.5};
    const auto& whole = schedules.of(p, chunks, 100);
    EXPECT_NEAR(times_of_step(schedules, p, chunks, 100, costs, 0.1).makespan /
                    pipeline_times(whole.schedule, costs, 0.1).makespan,
                1, 0.002)
        << schedule;
    const auto& steady = schedules.of(p, chunks, steady_microbatches(p, chunks, 100));
    EXPECT_EQ(steady.report.peak_live, whole.report.peak_live) << schedule << " keeps no more alive";
  }
  EXPECT_EQ(steady_microbatches(pipeline(4), 1, 1000), 17);
  EXPECT_EQ(steady_microbatches(pipeline(4), 1, 12), 12);
}

TEST(PipelineTime, RefusesWrongNumbersOfCosts) {
  EXPECT_THROW(pipeline_times(one_f_one_b(2, 2), equal(3, 1, 1), 0), Error);
}

}  // namespace
}  // namespace colonnade::schedule
