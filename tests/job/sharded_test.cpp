// Data ranks with sharded gradients and weights compute the same as one rank: plain blocks, tied embeddings,
// key-value heads shared by tensor ranks, deferred weight gradients.
#include <span>

#include "job/gradients.h"

namespace colonnade::job {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)

constexpr const char* kShardings[] = {
    "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads",
    "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
    "--use-megatron-fsdp --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 2000",
    "--use-megatron-fsdp --torch-fsdp2-no-reshard-after-forward --overlap-param-gather --overlap-grad-reduce",
};

constexpr const char* kTwoLevels[] = {
    "--use-distributed-optimizer --num-distributed-optimizer-instances 2",
    "--use-distributed-optimizer --num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim",
    "--use-megatron-fsdp --num-distributed-optimizer-instances 2",
    ("--use-megatron-fsdp --num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim "
     "--torch-fsdp2-no-reshard-after-forward --overlap-param-gather --overlap-grad-reduce"),
};

void expect_shardings_agree(const std::string& model, const std::vector<Layout>& layouts,
                            std::span<const char* const> shardings = kShardings) {
  const auto flags = words(kCommon + model);
  const Gradients one = gradients(settings(1, flags));
  for (const Layout& layout : layouts)
    for (const char* sharding : shardings) {
      SCOPED_TRACE(fmt::format("{} {}", layout.name, sharding));
      const Gradients got = gradients(settings(layout.world, flags + words(layout.flags) + words(sharding)));
      ASSERT_EQ(got.size(), one.size());
      for (const auto& [name, gradient] : one) EXPECT_LT(distance(got.at(name), gradient), 1e-9) << name;
    }
}

TEST(Sharded, GradientsAgree) {
  expect_shardings_agree(
      fmt::format("{}{}", kGroups, kUntied),
      {{"Dp2", 2, ""},
       {"Tp2SpDp2", 4, "--tensor-model-parallel-size 2 --sequence-parallel"},
       {"Pp2Virtual2Dp2", 4,
        "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"}});
  expect_shardings_agree(
      fmt::format("{}{}", kExperts, kUntied),
      {{"Ep2Of4", 4, "--expert-model-parallel-size 2"}, {"Ep2Of2", 2, "--expert-model-parallel-size 2"}});
  expect_shardings_agree(std::string(kUntied) + "--attention-dropout 0 ",
                         {{"Cp2Dp2", 4, "--context-parallel-size 2"}});
  expect_shardings_agree(fmt::format("{}{}", kLatent, kUntied), {{"Dp2", 2, ""}});
}

TEST(Sharded, GradientsWithOptimizerInstancesAgree) {
  const std::string one = "--micro-batch-size 1 ";
  expect_shardings_agree(one, {{"Dp4", 4, ""}, {"Dp8", 8, ""}}, kTwoLevels);
  expect_shardings_agree(one + kMtp,
                         {{"Pp2ZbVDp4", 8, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"}},
                         kTwoLevels);
  expect_shardings_agree(one + kExperts + kUntied, {{"Ep2Dp4", 4, "--expert-model-parallel-size 2"}},
                         kTwoLevels);
}

constexpr const char* kTp2Sequence = "--tensor-model-parallel-size 2 --sequence-parallel ";

TEST(Sharded, GradientsOfTiedEmbeddingsAgree) {
  expect_shardings_agree("", {{"Dp2", 2, ""},
                              {"Tp2SpDp2", 4, kTp2Sequence},
                              {"Pp2Dp2", 4, "--pipeline-model-parallel-size 2"},
                              {"Pp2Virtual2Dp2", 4,
                               "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"}});
}

// A rank with no layers between embedding and head.
TEST(Sharded, GradientsOfAdjacentTiedEmbeddingsAgree) {
  expect_shardings_agree("", {{"Pp2ZbVDp2", 4,
                               "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v "
                               "--pipeline-model-parallel-layout E|tt|tt|L"}});
}

TEST(Sharded, GradientsOfMtpAgree) {
  for (const char* untied : {"", kUntied})
    expect_shardings_agree(
        fmt::format("{}{}", kMtp, untied),
        {{"Dp2", 2, ""},
         {"Tp2SpDp2", 4, kTp2Sequence},
         {"Pp2Dp2", 4, "--pipeline-model-parallel-size 2"},
         {"Pp2ZbVDp2", 4, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"},
         {"Pp2ZbH1Dp2", 4, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1"},
         {"ThreeReadersOnARankDp2", 2, "--pipeline-model-parallel-layout Etttt|mm|L"},
         {"ACopyForTwoReadersDp2", 4,
          "--pipeline-model-parallel-size 2 --delay-wgrad-compute --overlap-grad-reduce "
          "--overlap-param-gather --pipeline-model-parallel-layout Ett|ttmm||L"},
         {"HeadAloneDp2", 8, "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Ett|tt|mm|L"},
         {"HeadAloneZbVDp2", 4,
          "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v "
          "--pipeline-model-parallel-layout Et|tt|tmm|L"}});
}

TEST(Sharded, GradientsOfSharedKeyValueHeadsAgree) {
  for (const char* groups : {"--num-query-groups 1 ", "--num-query-groups 2 "})
    expect_shardings_agree(fmt::format("{}{}", kGroups, groups),
                           {{"Tp2Dp2", 4, "--tensor-model-parallel-size 2"},
                            {"Tp4SpDp2", 8, "--tensor-model-parallel-size 4 --sequence-parallel"}});
}

TEST(Sharded, DeferredWeightGradientsAgree) {
  const std::vector<Layout> layouts{
      {"Pp2ZbH1Dp2", 4, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1"},
      {"Pp2ZbVDp2", 4, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"},
      {"Pp2DualPipeVDp2", 4, "--pipeline-model-parallel-size 2 --pipeline-schedule dualpipe-v"},
      {"Pp2DelayedDp2", 4, "--pipeline-model-parallel-size 2 --delay-wgrad-compute"},
      {"Pp2Virtual2DelayedTp2Dp2", 8,
       "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --delay-wgrad-compute "
       "--tensor-model-parallel-size 2"}};
  for (const char* model : {"", kUntied}) expect_shardings_agree(model, layouts);
  expect_shardings_agree(fmt::format("{}{}", kExperts, kUntied),
                         {{"Pp2Ep2ZbV", 4,
                           "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v "
                           "--expert-model-parallel-size 2"}});
  expect_shardings_agree(fmt::format("{}{}", kLatent, kUntied), {layouts[0]});
}

TEST(Sharded, GradientsEqualTheDistributedOptimizersBitwiseWithOneMicroBatch) {
  const auto flags = words(fmt::format("{}{}{}", kCommon, kUntied, "--micro-batch-size 4 "));
  const Gradients one = gradients(settings(2, flags + words("--use-distributed-optimizer")));
  for (const char* sharding : kShardings) {
    const Gradients sharded = gradients(settings(2, flags + words(sharding)));
    for (const auto& [name, gradient] : one) EXPECT_TRUE(at::equal(sharded.at(name), gradient)) << name;
  }
}

/// Evaluation losses before and after a step, in fp32.
std::vector<double> evaluated(const config::Run& run) {
  std::vector<double> losses;
  std::mutex mutex;
  on_jobs(run, [&](Job& job) {
    for (int step = 0; step < 2; ++step) {
      const auto found = job.evaluate(1, [&](int) { return steps_after(job, 0); }).at("lm_loss");
      if (const std::lock_guard lock(mutex); job.ranks.rank() == 0) losses.push_back(found);
      job.train_step(steps_after(job, 0), {.learning_rate = 0.1});
    }
  });
  return losses;
}

TEST(Sharded, EvaluationsAroundAStepAgree) {
  const auto flags = words(fmt::format("{}{}--hidden-dropout 0 --attention-dropout 0 ", kCommon, kUntied));
  const std::vector<double> one = evaluated(settings(1, flags));
  EXPECT_GT(std::abs(one[0] - one[1]), 1e-3);
  for (const char* sharding : kShardings) {
    const std::vector<double> two = evaluated(settings(2, flags + words(sharding)));
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 2e-5 * one[i]) << sharding;
  }
}

}  // namespace
}  // namespace colonnade::job
