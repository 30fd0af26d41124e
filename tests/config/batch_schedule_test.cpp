// Batch sizes of steps, against values computed by hand from Megatron's formulas and a step-by-step count.
#include "colonnade/config/batch_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/config/derive.h"

namespace colonnade::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using Size = BatchSchedule::Size;

Training stepwise(const std::string& schedule, std::int64_t seq_length) {
  Training t;
  t.seq_length = seq_length;
  t.step_batch_size_schedule = schedule;
  t.global_batch_size = final_size_of_step_schedule(t);
  return t;
}

Training ramp(std::vector<std::string> words, std::int64_t global) {
  Training t;
  t.seq_length = 2048;
  t.global_batch_size = global;
  t.rampup_batch_size = std::move(words);
  return t;
}

// 200e9 and 400e9 tokens of 4096 per sample are 48828125 and 97656250 samples exactly.
TEST(BatchSchedule, StepsAreCountedInTokens) {
  const Training t = stepwise("0:384 200B:768 400B:1152", 4096);
  EXPECT_EQ(t.global_batch_size, 1152);
  const BatchSchedule schedule = batch_schedule(t);
  EXPECT_THAT(schedule.sizes(), ElementsAre(Size{0, 384}, Size{48'828'125, 768}, Size{97'656'250, 1152}));
  EXPECT_EQ(schedule.batch_size_at(0), 384);
  EXPECT_EQ(schedule.batch_size_at(48'828'124), 384);
  EXPECT_EQ(schedule.batch_size_at(48'828'125), 768);
  EXPECT_EQ(schedule.batch_size_at(97'656'249), 768);
  EXPECT_EQ(schedule.batch_size_at(97'656'250), 1152);
  EXPECT_EQ(schedule.text(), "384, 768 from 48828125 samples, 1152 from 97656250 samples");
}

// Thresholds are rounded down to samples: 1000 / 32 = 31.25, 2.5e3 / 32 = 78.1.
TEST(BatchSchedule, AcceptsMegatronsSpellings) {
  const std::vector<Size> expected{{0, 8}, {31, 16}, {78, 1000}};
  for (const char* text : {"0:8 1000:16 2500:1000", "0:8,1K:16,2.5k:1K", " 0:8, 1K:16,  2500:1e3 ",
                           "2.5K:1000 0:8 1k:16", "0K:8 0.000001B:16 2.5e-9T:1000"}) {
    const Training t = stepwise(text, 32);
    EXPECT_EQ(step_schedule_fault(t), "") << text;
    EXPECT_EQ(batch_schedule(t).sizes(), expected) << text;
  }
}

TEST(BatchSchedule, FaultySchedulesAreConstant) {
  for (const auto& [text, fault] :
       std::vector<std::pair<const char*, const char*>>{{" , ", "at least one entry"},
                                                        {"8", "unlike '8'"},
                                                        {"0:8 1Q:16", "unlike '1Q:16'"},
                                                        {"0:8 1K:", "unlike '1K:'"},
                                                        {"0:8 :16", "unlike ':16'"},
                                                        {"0:8 -1:16", "unlike '-1:16'"},
                                                        {"0:8 1:16:2", "unlike '1:16:2'"},
                                                        {"0:8 nan:16", "unlike 'nan:16'"},
                                                        {"1K:8", "from 0 tokens"},
                                                        {"0:0 1K:8", "above 0"},
                                                        {"0:8 1K:16 1001:32", "not 31 twice"},
                                                        {"0:16 1K:8", "from 16 to 8"}}) {
    Training t = stepwise(text, 32);
    EXPECT_THAT(step_schedule_fault(t), HasSubstr(fault)) << text;
    t.global_batch_size = 24;
    EXPECT_THAT(batch_schedule(t).sizes(), ElementsAre(Size{0, 24})) << text;
  }
  EXPECT_EQ(step_schedule_fault({}), "");
}

// From Megatron's help of --rampup-batch-size: "16 8 300000" with --global-batch-size 1024 has (1024 - 16) /
// 8 = 126 increments of 300000 / 126 samples.
TEST(BatchSchedule, RampsInEqualIncrements) {
  const Training t = ramp({"16", "8", "300000"}, 1024);
  EXPECT_EQ(rampup_fault(t), "");
  const BatchSchedule schedule = batch_schedule(t);
  const double per_increment = 300000 / 126.0;
  for (const std::int64_t consumed :
       {0, 1, 2380, 2381, 4761, 4762, 150'000, 297'619, 299'999, 300'000, 300'001, 10'000'000}) {
    const std::int64_t expected =
        consumed > 300'000
            ? 1024
            : 16 + static_cast<std::int64_t>(static_cast<double>(consumed) / per_increment) * 8;
    EXPECT_EQ(schedule.batch_size_at(consumed), expected) << consumed;
  }
  EXPECT_EQ(schedule.batch_size_at(2380), 16);
  EXPECT_EQ(schedule.batch_size_at(2381), 24);
  EXPECT_EQ(schedule.text(), "16 to 1024, 127 sizes up to 300000 samples");
}

// Every consumed count of ramps whose increments are whole, fractions, and less than a sample.
TEST(BatchSchedule, RampsAsMegatronComputes) {
  for (const auto& [start, increment, samples, global] : std::vector<std::array<std::int64_t, 4>>{
           {2, 2, 12, 8}, {1, 1, 100, 8}, {4, 4, 3, 64}, {7, 3, 1000, 58}}) {
    const BatchSchedule schedule = batch_schedule(
        ramp({std::to_string(start), std::to_string(increment), std::to_string(samples)}, global));
    const double per_increment =
        static_cast<double>(samples) / (static_cast<double>(global - start) / static_cast<double>(increment));
    for (std::int64_t consumed = 0; consumed < samples + 10; ++consumed) {
      const auto increments = static_cast<std::int64_t>(static_cast<double>(consumed) / per_increment);
      EXPECT_EQ(schedule.batch_size_at(consumed),
                consumed > samples ? global : start + increments * increment)
          << consumed << " of " << samples;
    }
  }
}

TEST(BatchSchedule, FaultyRampsAreConstant) {
  using W = std::vector<std::string>;
  for (const W& words : {W{"16", "8"}, W{"16", "8", "x"}, W{"16", "8", "1", "2"}, W{"16", "8", "1.5"},
                         W{"0", "8", "100"}, W{"16", "0", "100"}, W{"16", "8", "0"}, W{"16", "7", "100"},
                         W{"72", "8", "100"}, W{"-16", "8", "100"}}) {
    const Training t = ramp(words, 64);
    EXPECT_NE(rampup_fault(t), "") << ::testing::PrintToString(words);
    EXPECT_THAT(batch_schedule(t).sizes(), ElementsAre(Size{0, 64}));
  }
  EXPECT_NE(rampup_fault(ramp({"1", "1", "100"}, 1'000'000'000'000)), "") << "more sizes than memory";
  EXPECT_EQ(rampup_fault(ramp({"64", "8", "100"}, 64)), "");
}

TEST(BatchSchedule, CountsStepsAndSamples) {
  const std::vector<BatchSchedule> schedules{BatchSchedule(4), batch_schedule(stepwise("0:3 100:7 350:8", 8)),
                                             batch_schedule(ramp({"2", "2", "12"}, 8)),
                                             BatchSchedule(std::vector<Size>{{0, 5}, {1, 6}, {2, 50}})};
  for (const BatchSchedule& schedule : schedules) {
    for (const std::int64_t begin : {0, 3, 12, 13, 49, 1000}) {
      std::int64_t consumed = begin;
      for (std::int64_t steps = 0; steps < 40; ++steps) {
        EXPECT_EQ(schedule.samples_after(begin, steps), consumed) << schedule.text();
        const std::int64_t size = schedule.batch_size_at(consumed);
        EXPECT_EQ(schedule.steps_within(begin, consumed), steps) << schedule.text();
        EXPECT_EQ(schedule.steps_within(begin, consumed + size - 1), steps) << schedule.text();
        consumed += size;
      }
    }
    EXPECT_EQ(schedule.steps_within(100, 50), 0);
  }
}

TEST(BatchSchedule, RoundsDownToWholeMicroBatches) {
  config::Run run;
  run.parallel.world_size = 6;
  run.training = ramp({"8", "8", "70"}, 64);
  run.training.micro_batch_size = 2;
  run.training.decrease_batch_size_if_needed = true;
  derive(run);
  EXPECT_EQ(run.training.batch_multiple, 12);
  // 8 + 8 * floor(consumed / 10), rounded down to a multiple of 12.
  const BatchSchedule schedule = batch_schedule(run.training);
  for (const auto& [consumed, size] : std::vector<std::pair<int, int>>{
           {0, 0}, {10, 12}, {20, 24}, {30, 24}, {40, 36}, {50, 48}, {60, 48}, {69, 48}, {70, 60}})
    EXPECT_EQ(schedule.batch_size_at(consumed), size) << consumed;
  EXPECT_EQ(run.training.global_batch_size, 64) << "the learning rate schedule uses it, as in Megatron";
  EXPECT_EQ(eval_batch_size(run.training), 60);
}

TEST(BatchSchedule, LastSizeIsTheGlobalBatchSize) {
  config::Run run;
  run.training.micro_batch_size = 2;
  run.training.seq_length = 8;
  run.training.step_batch_size_schedule = "0:8 1K:16";
  derive(run);
  EXPECT_EQ(run.training.global_batch_size, 16);
  const Training constant = with_constant_batch_size(run.training, 10);
  EXPECT_EQ(batch_schedule(constant).sizes(), (std::vector<Size>{{0, 10}}));
}

// A run folder's config.yaml has the global batch size that followed from the old schedule.
TEST(BatchSchedule, OfTheCommandLineReplacesTheSizeOfAFile) {
  config::Run run;
  run.training.seq_length = 8;
  run.training.global_batch_size = 16;
  run.given["global_batch_size"] = "config.yaml:3";
  run.training.step_batch_size_schedule = "0:8 1K:32";
  run.given["step_batch_size_schedule"] = "config.yaml:4";
  config::Run of_file = run;
  derive(of_file);
  EXPECT_EQ(of_file.training.global_batch_size, 16);
  run.given["step_batch_size_schedule"] = "the command line";
  derive(run);
  EXPECT_EQ(run.training.global_batch_size, 32);
}

}  // namespace
}  // namespace colonnade::config
