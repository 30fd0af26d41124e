// With --deterministic-mode gradients have the same bits for every number of data ranks that is a power of
// two, every cut by stages and every way to shard, dropout on.
#include "job/gradients.h"

namespace colonnade::job {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)

Gradients in_order(int world, const std::string& model, const std::string& layout) {
  return gradients(settings(world, words(kCommon + model + layout + " --deterministic-mode")));
}

struct Cut {
  int world;
  const char* flags;
};

/// As on `ranks` ranks without further cuts.
void expect_same_bits(const std::string& model, std::initializer_list<Cut> layouts, int ranks = 1) {
  const Gradients one = in_order(ranks, model, "");
  for (const Cut& cut : layouts) {
    SCOPED_TRACE(cut.flags);
    const Gradients got = in_order(cut.world, model, cut.flags);
    ASSERT_EQ(got.size(), one.size());
    for (const auto& [name, gradient] : one) EXPECT_TRUE(at::equal(got.at(name), gradient)) << name;
  }
}

constexpr const char* kSingle = "--micro-batch-size 1 ";
const std::string kPlain = std::string(kUntied) + kSingle;

TEST(Deterministic, GradientsHaveTheSameBits) {
  expect_same_bits(kPlain,
                   {{2, ""},
                    {4, "--use-distributed-optimizer"},
                    {8, "--overlap-grad-reduce --ddp-bucket-size 3000"},
                    {2, "--pipeline-model-parallel-size 2"},
                    {4, "--pipeline-model-parallel-size 2 --pipeline-schedule gpipe"},
                    {4, "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"},
                    {4, "--pipeline-model-parallel-size 4"},
                    {2, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads"},
                    {4, "--use-megatron-fsdp --overlap-grad-reduce --overlap-param-gather"},
                    {4, "--use-megatron-fsdp --pipeline-model-parallel-size 2"},
                    {2, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"}});
}

TEST(Deterministic, GradientsOfAnOddNumberOfMicroBatchesHaveTheSameBits) {
  expect_same_bits(kPlain + "--global-batch-size 12 ",
                   {{2, ""}, {4, ""}, {2, "--pipeline-model-parallel-size 2"}});
}

TEST(Deterministic, GradientsOfExpertsHaveTheSameBits) {
  expect_same_bits(kExperts + kPlain,
                   {{2, ""}, {4, "--use-megatron-fsdp"}, {2, "--pipeline-model-parallel-size 2"}});
}

// A table that two blocks of one rank read is summed as its copies on two ranks are.
TEST(Deterministic, GradientsOfTiedEmbeddingsHaveTheSameBits) {
  expect_same_bits(kSingle, {{2, ""},
                             {4, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"},
                             {2, "--pipeline-model-parallel-size 2"},
                             {4, "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"},
                             {2, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads"},
                             {4, "--use-megatron-fsdp --pipeline-model-parallel-size 2"},
                             {4, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"}});
}

TEST(Deterministic, GradientsOfFurtherTokensHaveTheSameBits) {
  for (const char* untied : {"", kUntied})
    expect_same_bits(fmt::format("{}{}{}", kFurther, untied, kSingle),
                     {{2, ""},
                      {2, "--pipeline-model-parallel-size 2"},
                      {4, "--use-megatron-fsdp --pipeline-model-parallel-size 2"}});
  expect_same_bits(kFurther + kPlain,
                   {{4, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"},
                    {4, "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Ett|tt|mm|L"}});
}

TEST(Deterministic, GradientsThatWaitHaveTheSameBits) {
  expect_same_bits(kPlain,
                   {{2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1"},
                    {4,
                     "--pipeline-model-parallel-size 4 --pipeline-schedule zb-h1 "
                     "--pipeline-model-parallel-layout Et|tt|t|L"},
                    {4, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --use-megatron-fsdp"},
                    {4, "--pipeline-model-parallel-size 2 --pipeline-schedule dualpipe-v"},
                    {4, "--pipeline-model-parallel-size 2 --delay-wgrad-compute --overlap-grad-reduce"}});
}

// Of tensor and expert ranks the promise is kept for what cuts them further.
TEST(Deterministic, GradientsOfTensorRanksHaveTheSameBits) {
  expect_same_bits(kPlain + "--tensor-model-parallel-size 2 --sequence-parallel ",
                   {{4, ""}, {4, "--pipeline-model-parallel-size 2"}, {8, "--use-megatron-fsdp"}}, 2);
}

TEST(Deterministic, GradientsOfRowsThatTensorRanksShareHaveTheSameBits) {
  expect_same_bits(kPlain + kGroups + "--num-query-groups 1 --tensor-model-parallel-size 2 ",
                   {{4, ""}, {8, "--use-megatron-fsdp"}}, 2);
}

TEST(Deterministic, GradientsOfExpertRanksHaveTheSameBits) {
  expect_same_bits(kExperts + kPlain + "--expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall ",
                   {{4, ""}, {4, "--pipeline-model-parallel-size 2"}, {8, "--use-megatron-fsdp"}}, 2);
}

TEST(Deterministic, AreNotWithoutIt) {
  const std::string model = std::string(kCommon) + kUntied + "--micro-batch-size 1 ";
  const Gradients one = gradients(settings(1, words(model)));
  const Gradients two = gradients(settings(2, words(model)));
  bool same = true;
  for (const auto& [name, gradient] : one) same &= at::equal(two.at(name), gradient);
  EXPECT_FALSE(same);
}

}  // namespace
}  // namespace colonnade::job
