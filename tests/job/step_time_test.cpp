// Accounting of a step's time: waiting for another rank counts as communication in every layout.
#include <chrono>
#include <thread>

#include "job/runs.h"

namespace colonnade::test {
namespace {

constexpr double kDelaySeconds = 0.4;

/// One step in which every batch of rank 0 is late.
job::Seconds delayed_step(job::Job& job) {
  pipeline::Steps steps = steps_after(job, 0);
  steps.batch = [&job, on_time = steps.batch](int microbatch) {
    if (job.ranks.rank() == 0) std::this_thread::sleep_for(std::chrono::duration<double>(kDelaySeconds));
    return on_time(microbatch);
  };
  return job.train_step(steps, {.learning_rate = 1e-3}).seconds;
}

class StepTime : public testing::TestWithParam<const char*> {};

TEST_P(StepTime, WaitingForASlowRankIsCommunication) {
  const config::Run run = settings(
      2, words("--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 8 "
               "--max-position-embeddings 8 --vocab-size 32 --micro-batch-size 2 --global-batch-size 4") +
             words(GetParam()));
  on_jobs(run, [](job::Job& job) {
    const job::Seconds seconds = delayed_step(job);
    if (job.ranks.rank() == 0) {
      EXPECT_GE(seconds.forward_backward, kDelaySeconds);
    } else {
      EXPECT_GE(seconds.communication, 0.75 * kDelaySeconds);
      EXPECT_LT(seconds.forward_backward, 0.75 * kDelaySeconds);
      EXPECT_LT(seconds.optimizer, 0.75 * kDelaySeconds);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, StepTime,
                         testing::Values("--tensor-model-parallel-size 2",
                                         "--tensor-model-parallel-size 2 --sequence-parallel",
                                         "--pipeline-model-parallel-size 2", "--ddp-bucket-size 100",
                                         "--use-distributed-optimizer --overlap-grad-reduce "
                                         "--overlap-param-gather"));

}  // namespace
}  // namespace colonnade::test
