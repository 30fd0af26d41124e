// Outliers of losses and gradient norms, and replicas whose weights differ.
#include "colonnade/train/step_checks.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "colonnade/base/error.h"
#include "job/runs.h"

namespace colonnade::train {
namespace {

using test::operator+;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kCheckedModel =
    "--num-layers 2 --hidden-size 16 --ffn-hidden-size 24 --num-attention-heads 4 --vocab-size 37 --seq-length 8 "
    "--max-position-embeddings 8 --micro-batch-size 1 --global-batch-size 4 --hidden-dropout 0 "
    "--attention-dropout 0 ";

config::Run run_with(int world, const std::string& flags) {
  return test::settings(world, test::words(kCheckedModel + flags));
}

// Megatron: the first 100 finite values give the maximum, later ones of at least 10 times that are reported.
TEST(OutlierCheck, ComparesWithTheFirstHundredValues) {
  OutlierCheck check;
  EXPECT_FALSE(check.is_outlier(std::nan("")));
  EXPECT_FALSE(check.is_outlier(std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(check.is_outlier(-3));
  for (int i = 1; i < 100; ++i) EXPECT_FALSE(check.is_outlier(i % 2 == 0 ? 0.5 : -2)) << i;
  EXPECT_EQ(check.maximum(), 3);
  EXPECT_FALSE(check.is_outlier(29.9));
  EXPECT_TRUE(check.is_outlier(30));
  EXPECT_TRUE(check.is_outlier(-31));
  EXPECT_FALSE(check.is_outlier(std::nan("")));
  EXPECT_FALSE(check.is_outlier(29.9)) << "later values do not change the maximum";
}

TEST(StepChecks, NameTheRankAndTheValue) {
  StepChecks checks;
  job::StepReport report{.microbatch_losses = {2, 2}, .bucket_norms = {{"bucket 0", 0.5}}};
  for (int step = 0; step < 100; ++step) EXPECT_THAT(checks.outliers(report, step, 3), IsEmpty());
  report.microbatch_losses[1] = 21;
  EXPECT_THAT(
      checks.outliers(report, 101, 3),
      ElementsAre(HasSubstr("--check-for-spiky-loss: step 101, rank 3: the loss of micro-batch 1 is 21")));
  report.microbatch_losses[1] = 2;
  report.bucket_norms[0].second = 5;
  EXPECT_THAT(checks.outliers(report, 102, 3),
              ElementsAre(HasSubstr(
                  "--check-for-large-grads: step 102, rank 3: the local gradient norm of bucket 0")));
}

TEST(StepChecks, ValuesAreOfEachRankBeforeItsReduction) {
  const std::string flags = "--check-for-spiky-loss --check-for-large-grads ";
  test::on_jobs(run_with(1, flags), [](job::Job& job) {
    const auto report = job.train_step(test::steps_after(job, 0), {.learning_rate = 1e-3});
    ASSERT_THAT(report.microbatch_losses, SizeIs(4));
    const auto one = job.train_step(test::steps_after(job, 4), {.learning_rate = 0});
    double squares = 0;
    for (const auto& [name, norm] : one.bucket_norms) squares += norm * norm;
    EXPECT_NEAR(std::sqrt(squares), one.optimizer.grad_norm, 1e-5 * one.optimizer.grad_norm);
  });
  test::on_jobs(run_with(1, flags + "--global-batch-size 1"), [](job::Job& job) {
    const auto report = job.train_step(test::steps_after(job, 0), {.learning_rate = 1e-3});
    ASSERT_THAT(report.microbatch_losses, SizeIs(1));
    EXPECT_NEAR(report.microbatch_losses[0], report.losses.at("lm_loss"), 1e-6);
  });
  for (const char* layout : {"--use-distributed-optimizer --overlap-grad-reduce",
                             "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "
                             "--untie-embeddings-and-output-weights"})
    test::on_jobs(run_with(2, flags + layout), [](job::Job& job) {
      const auto report = job.train_step(test::steps_after(job, 0), {.learning_rate = 1e-3});
      EXPECT_THAT(report.microbatch_losses, SizeIs(2));
      EXPECT_THAT(report.bucket_norms, testing::Not(IsEmpty()));
      for (const auto& [name, norm] : report.bucket_norms) EXPECT_GT(norm, 0) << name;
    });
  test::on_jobs(run_with(2, flags + "--pipeline-model-parallel-size 2"), [](job::Job& job) {
    const auto report = job.train_step(test::steps_after(job, 0), {.learning_rate = 1e-3});
    EXPECT_THAT(report.microbatch_losses, SizeIs(job.ranks.rank() == 1 ? 4 : 0));
  });
}

TEST(StepChecks, OffByDefault) {
  test::on_jobs(run_with(1, ""), [](job::Job& job) {
    const auto report = job.train_step(test::steps_after(job, 0), {.learning_rate = 1e-3});
    EXPECT_THAT(report.microbatch_losses, IsEmpty());
    EXPECT_THAT(report.bucket_norms, IsEmpty());
  });
}

TEST(WeightHash, IsDueAtItsInterval) {
  config::Training t;
  EXPECT_FALSE(weight_hash_due(t, 10));
  t.check_weight_hash_across_dp_replicas_interval = 5;
  EXPECT_TRUE(weight_hash_due(t, 10));
  EXPECT_FALSE(weight_hash_due(t, 11));
}

/// Runs a step and changes one bit of a parameter whose name contains `part` on rank `changed`.
void expect_found(int world, const std::string& flags, int changed, const std::string& part,
                  const std::string& ranks) {
  test::on_jobs(run_with(world, flags), [&](job::Job& job) {
    job.train_step(test::steps_after(job, 0), {.learning_rate = 1e-3});
    EXPECT_NO_THROW(require_equal_replicas(job)) << flags;
    for (tensor::Parameter* p : job.parameters()) {
      if (job.ranks.rank() != changed || p->spec.name.find(part) == std::string::npos) continue;
      const at::NoGradGuard no_grad;
      const at::Tensor first = p->value.detach().view(-1)[0];
      first.fill_(std::nextafter(first.item<float>(), 10.0F));
      break;
    }
    try {
      require_equal_replicas(job);
      ADD_FAILURE() << flags;
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(),
                  testing::AllOf(HasSubstr(part), HasSubstr(ranks), HasSubstr("after iteration 1")));
    }
  });
}

TEST(WeightHash, NamesTheRankThatDiffers) {
  expect_found(4, "--use-distributed-optimizer --overlap-param-gather --overlap-grad-reduce", 2,
               "word_embeddings", "on rank 2 than");
  expect_found(4, "", 0, "linear_fc1.weight", "on rank 0 than");
  expect_found(4, "--tensor-model-parallel-size 2", 3, "linear_qkv.weight", "on ranks 1, 3 than");
  expect_found(
      4,
      "--disable-bias-linear --num-experts 4 --moe-router-topk 2 --moe-aux-loss-coeff 0.01 --expert-model-parallel-size 2",
      1, "experts", "on ranks 1, 3 than");
}

}  // namespace
}  // namespace colonnade::train
