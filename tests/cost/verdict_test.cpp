// Durations in readable units, the fit of a layout, and the time of a run, by hand.
#include "colonnade/cost/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/cost/memory.h"
#include "support/presets.h"

namespace colonnade::cost {
namespace {

TEST(Verdict, PrintsDurationsInReadableUnits) {
  EXPECT_EQ(duration_text(0), "0.00 ms");
  EXPECT_EQ(duration_text(0.0096), "9.60 ms");
  EXPECT_EQ(duration_text(0.0306), "30.6 ms");
  EXPECT_EQ(duration_text(1.5), "1.50 s");
  EXPECT_EQ(duration_text(137.2202), "137.2 s");
  EXPECT_EQ(duration_text(860), "14.3 min");
  EXPECT_EQ(duration_text(5.5 * 3600), "5.50 h");
  EXPECT_EQ(duration_text(47 * 3600), "47.0 h");
  EXPECT_EQ(duration_text(3.97 * 86400), "3.97 days");
  EXPECT_EQ(duration_text(400 * 86400), "400.0 days");
}

constexpr double kGiB = 1024.0 * 1024 * 1024;

TEST(Verdict, PrintsWhetherALayoutFits) {
  EXPECT_EQ(fit_text({216.3 * kGiB, 74 * kGiB}), "does not fit: 216 of 74 GiB");
  EXPECT_EQ(fit_text({62.5 * kGiB, 74 * kGiB}), "fits: 62.5 of 74 GiB");
  EXPECT_EQ(fit_text({74 * kGiB, 74 * kGiB}), "fits: 74 of 74 GiB");
  EXPECT_EQ(fit_text({74.004 * kGiB, 74 * kGiB}), "does not fit: 74.004 of 74 GiB") << "never 74 of 74";
  EXPECT_EQ(fit_text({1234 * kGiB, 74 * kGiB}), "does not fit: 1234 of 74 GiB");
  EXPECT_EQ(fit_text({kGiB / 2, 74 * kGiB}), "fits: 512 MiB of 74.0 GiB");
}

config::Run llama(int world, int tensor) {
  config::Run run;
  run.model = test::llama3_8b();
  run.parallel = test::layout(world, tensor, 1);
  run.training.seq_length = 2048;
  run.training.micro_batch_size = 1;
  run.training.global_batch_size = run.parallel.data_parallel_size();
  return run;
}

TEST(Verdict, ComparesPeakWithUsableMemory) {
  const Hardware h100 = read_hardware("h100");
  const Fit one = fit_of(llama(1, 1), h100), eight = fit_of(llama(8, 8), h100);
  EXPECT_FALSE(one.fits()) << "8.03 billion parameters at 18 bytes each";
  EXPECT_GT(one.needed, 8.03e9 * 18);
  EXPECT_TRUE(eight.fits());
  EXPECT_EQ(eight.usable, h100.memory_bytes - h100.reserved_bytes);
  EXPECT_EQ(eight.needed, static_cast<double>(max_peak_bytes(llama(8, 8), plan_memory(llama(8, 8)))));
}

TEST(Verdict, RunTimeIsStepsTimesDevices) {
  config::Run run = llama(64, 8);
  EXPECT_FALSE(run_time(run, 137.22)) << "no length";
  run.training.train_iters = 2500;
  EXPECT_EQ(
      run_time_text(*run_time(run, 137.22)),
      "run of 2,500 steps: 3.97 days, 6,099 GPU-hours on 64 GPUs, without evaluations, checkpoints and restarts");
  run.training.train_iters.reset();
  run.training.train_samples = 8 * 2500 + 7;
  EXPECT_EQ(run_time(run, 137.22)->steps, 2500) << "samples beyond the last full batch are not trained";
  run.training.train_samples = 8;
  EXPECT_THAT(run_time_text(*run_time(run, 90)),
              ::testing::StartsWith("run of 1 step: 90.0 s (0.001 days), 1.6 GPU-hours on 64 GPUs"));
  run.training.skip_train = true;
  EXPECT_FALSE(run_time(run, 90));
}

// Steps of 4, 4, 8 and 8 samples.
TEST(Verdict, RunTimeCountsSmallerStepsByTheirSamples) {
  config::Run run = llama(64, 8);
  run.training.rampup_batch_size = {"4", "4", "7"};
  run.training.train_samples = 31;
  EXPECT_EQ(run_time(run, 10)->steps, 4);
  EXPECT_DOUBLE_EQ(run_time(run, 10)->seconds, 30);
  run.training.train_samples.reset();
  run.training.train_iters = 5;
  EXPECT_DOUBLE_EQ(run_time(run, 10)->seconds, 40);
}

}  // namespace
}  // namespace colonnade::cost
