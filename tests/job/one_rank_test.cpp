// A training run on one rank, on the CPU or a GPU: it resumes from the state that it saved.
#include <type_traits>

#include "checkpoint/fixtures.h"
#include "colonnade/base/progress.h"
#include "colonnade/job/checkpoint.h"
#include "job/runs.h"
#include "support/device.h"

namespace colonnade::job {
namespace {

using test::operator+;

static_assert(!std::is_move_constructible_v<Job> && !std::is_copy_constructible_v<Job>,
              "hooks of its stages hold its address");

config::Run one_rank_settings(const std::string& more) {
  return test::settings(
      1,
      test::words("--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 8 "
                  "--max-position-embeddings 8 --vocab-size 37 --micro-batch-size 2 --global-batch-size 4 " +
                  more + " --device " + test::device_flag()));
}

/// The samples of steps_after on the job's device.
pipeline::Steps steps_of(const Job& job) {
  pipeline::Steps steps = test::steps_after(job, job.counters.consumed_samples);
  steps.batch = [on_host = steps.batch](int microbatch) {
    const tensor::Batch host = on_host(microbatch);
    tensor::Batch batch;
    for (const tensor::Field field :
         {tensor::Field::kTokens, tensor::Field::kLabels, tensor::Field::kLossMask, tensor::Field::kSamples})
      batch.set(field, host.at(field).to(test::device()));
    return batch;
  };
  return steps;
}

std::vector<double> train_steps(Job& job, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i)
    losses.push_back(
        job.train_step(steps_of(job), {.learning_rate = 1e-2, .weight_decay = 0.1}).losses.at("lm_loss"));
  return losses;
}

TEST(OneRank, RestoredRunContinuesTheSavedOne) {
  for (const char* flags : {"", "--bf16 --openai-gelu", "--swiglu --normalization RMSNorm --optimizer sgd"}) {
    SCOPED_TRACE(flags);
    const checkpoint::test::TempFolder folder;
    const auto run = one_rank_settings(flags);
    std::vector<double> uninterrupted, rest;
    test::on_jobs(run, [&](Job& job) {
      uninterrupted = train_steps(job, 3);
      ASSERT_TRUE(save(job, folder).ok);
      for (const double loss : train_steps(job, 2)) uninterrupted.push_back(loss);
    });
    test::on_jobs(run, [&](Job& job) {
      restore(job, checkpoint::CheckpointReader::open(folder), Restore::kResume);
      EXPECT_EQ(job.counters.iteration, 3);
      rest = train_steps(job, 2);
    });
    EXPECT_LT(uninterrupted[4], uninterrupted[0]) << "it learns";
    for (std::size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(rest[i], uninterrupted[3 + i]);
  }
}

/// A step whose loss is reported as `name`.
void train_named(Job& job, const std::string& name) {
  pipeline::Steps steps = steps_of(job);
  steps.loss = [name, inner = steps.loss](const at::Tensor& y, const tensor::Batch& batch) {
    pipeline::Loss loss = inner(y, batch);
    loss.report[name] = loss.report.extract("lm_loss").mapped();
    return loss;
  };
  job.train_step(steps, {.learning_rate = 1e-2});
}

TEST(OneRank, RejectsALossWithANewName) {
  test::on_jobs(one_rank_settings(""), [&](Job& job) {
    train_named(job, "mine");
    train_named(job, "mine");
    EXPECT_THROW(train_named(job, "other"), Error);
  });
}

TEST(OneRank, LossWithoutTokensIsZero) {
  test::on_jobs(one_rank_settings(""), [&](Job& job) {
    pipeline::Steps steps = steps_of(job);
    steps.batch = [inner = steps.batch](int microbatch) {
      tensor::Batch batch = inner(microbatch);
      batch.set(tensor::Field::kLossMask, at::zeros_like(batch.at(tensor::Field::kLossMask)));
      return batch;
    };
    EXPECT_EQ(job.train_step(steps, {.learning_rate = 1e-2}).losses.at("lm_loss"), 0);
  });
}

TEST(OneRank, PerTokenLossRequiresATokenCount) {
  test::on_jobs(one_rank_settings("--calculate-per-token-loss"),
                [&](Job& job) { EXPECT_THROW(train_named(job, "mine"), ConfigError); });
}

TEST(OneRank, StepIsReportedToProgress) {
  test::on_jobs(one_rank_settings(""), [&](Job& job) {
    for (const std::int64_t step : {1, 2}) {
      train_steps(job, 1);
      EXPECT_EQ(progress().read().step, step);
    }
  });
}

}  // namespace
}  // namespace colonnade::job
