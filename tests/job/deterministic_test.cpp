// With --deterministic-mode and dropout, gradients are bitwise equal for every power-of-two number of data
// ranks, every pipeline layout and every sharding.
#include "job/gradients.h"

namespace colonnade::job {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)

Gradients deterministic_gradients(int world, const std::string& model, const std::string& layout) {
  return gradients(settings(world, words(kCommon + model + layout + " --deterministic-mode")));
}

struct DeterministicLayout {
  int world;
  const char* flags;
};

/// Compares with `ranks` ranks without further parallelism.
void expect_same_bits(const std::string& model, std::initializer_list<DeterministicLayout> layouts,
                      int ranks = 1) {
  const Gradients one = deterministic_gradients(ranks, model, "");
  for (const DeterministicLayout& layout : layouts) {
    SCOPED_TRACE(layout.flags);
    const Gradients got = deterministic_gradients(layout.world, model, layout.flags);
    ASSERT_EQ(got.size(), one.size());
    for (const auto& [name, gradient] : one) EXPECT_TRUE(at::equal(got.at(name), gradient)) << name;
  }
}

constexpr const char* kSingle = "--micro-batch-size 1 ";
const std::string kPlain = std::string(kUntied) + kSingle;

TEST(Deterministic, GradientsAreBitwiseEqual) {
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

TEST(Deterministic, OddNumbersOfMicroBatches) {
  expect_same_bits(kPlain + "--global-batch-size 12 ",
                   {{2, ""}, {4, ""}, {2, "--pipeline-model-parallel-size 2"}});
}

TEST(Deterministic, Experts) {
  expect_same_bits(kExperts + kPlain,
                   {{2, ""}, {4, "--use-megatron-fsdp"}, {2, "--pipeline-model-parallel-size 2"}});
}

// Gradients of an embedding table used twice on one rank are summed as those of copies on two ranks.
TEST(Deterministic, TiedEmbeddings) {
  expect_same_bits(kSingle, {{2, ""},
                             {4, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"},
                             {2, "--pipeline-model-parallel-size 2"},
                             {4, "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"},
                             {2, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads"},
                             {4, "--use-megatron-fsdp --pipeline-model-parallel-size 2"},
                             {4, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"}});
}

TEST(Deterministic, MultiTokenPrediction) {
  for (const char* untied : {"", kUntied})
    expect_same_bits(fmt::format("{}{}{}", kMtp, untied, kSingle),
                     {{2, ""},
                      {2, "--pipeline-model-parallel-size 2"},
                      {4, "--use-megatron-fsdp --pipeline-model-parallel-size 2"}});
  expect_same_bits(kMtp + kPlain,
                   {{4, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"},
                    {4, "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Ett|tt|mm|L"}});
}

TEST(Deterministic, DeferredWeightGradients) {
  expect_same_bits(kPlain,
                   {{2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1"},
                    {4,
                     "--pipeline-model-parallel-size 4 --pipeline-schedule zb-h1 "
                     "--pipeline-model-parallel-layout Et|tt|t|L"},
                    {4, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --use-megatron-fsdp"},
                    {4, "--pipeline-model-parallel-size 2 --pipeline-schedule dualpipe-v"},
                    {4, "--pipeline-model-parallel-size 2 --delay-wgrad-compute --overlap-grad-reduce"}});
}

// With tensor or expert parallelism, equality holds for further parallelism on top of the same sizes.
TEST(Deterministic, TensorParallel) {
  expect_same_bits(kPlain + "--tensor-model-parallel-size 2 --sequence-parallel ",
                   {{4, ""}, {4, "--pipeline-model-parallel-size 2"}, {8, "--use-megatron-fsdp"}}, 2);
}

TEST(Deterministic, KeyValueHeadsSharedByTensorRanks) {
  expect_same_bits(kPlain + kGroups + "--num-query-groups 1 --tensor-model-parallel-size 2 ",
                   {{4, ""}, {8, "--use-megatron-fsdp"}}, 2);
}

TEST(Deterministic, ExpertParallel) {
  expect_same_bits(kExperts + kPlain + "--expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall ",
                   {{4, ""}, {4, "--pipeline-model-parallel-size 2"}, {8, "--use-megatron-fsdp"}}, 2);
}

TEST(Deterministic, GradientsDifferWithoutTheFlag) {
  const std::string model = std::string(kCommon) + kUntied + "--micro-batch-size 1 ";
  const Gradients one = gradients(settings(1, words(model)));
  const Gradients two = gradients(settings(2, words(model)));
  bool same = true;
  for (const auto& [name, gradient] : one) same &= at::equal(two.at(name), gradient);
  EXPECT_FALSE(same);
}

}  // namespace
}  // namespace colonnade::job
