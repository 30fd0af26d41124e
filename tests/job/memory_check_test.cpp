// Runs that are rejected because they do not fit the memory of the machine.
#include "colonnade/job/memory_check.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"
#include "job/runs.h"

namespace colonnade::job {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// fp32 weights of 4 layers and a vocabulary: 4 (12 h^2 + 13 h) + (v + s + 2) h elements.
config::Run small(int world, const std::string& more = "") {
  return test::settings(world,
                        test::words("--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 16 "
                                    "--max-position-embeddings 16 --vocab-size 128 "
                                    "--make-vocab-size-divisible-by 128 --micro-batch-size 1 " +
                                    more));
}
constexpr std::int64_t kElements = 4 * (12 * 64 * 64 + 13 * 64) + (128 + 16 + 2) * 64;

bool fits(const config::Run& run, std::int64_t memory, int ranks = 1,
          rules::Purpose purpose = rules::Purpose::kTrain) {
  try {
    require_memory(run, purpose, ranks, memory);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

/// Weight, gradient and two moments of each element in fp32, and the activations of one micro-batch.
TEST(RequireMemory, TrainingCountsWeightsGradientsMomentsAndActivations) {
  const config::Run run = small(1);
  const std::int64_t states = 16 * kElements;
  EXPECT_FALSE(fits(run, states));
  EXPECT_TRUE(fits(run, states + states / 2));
  EXPECT_TRUE(fits(run, 0)) << "not known";
  const config::Run longer = small(1, "--micro-batch-size 64 ");
  EXPECT_FALSE(fits(longer, states + states / 2)) << "64 sequences have more activations";
}

TEST(RequireMemory, MachineHoldsAllItsRanks) {
  const std::int64_t states = 16 * kElements, enough = states + states / 2;
  const config::Run replicas = small(4);
  EXPECT_FALSE(fits(replicas, enough, 2));
  EXPECT_TRUE(fits(replicas, 2 * enough, 2));
  EXPECT_FALSE(fits(replicas, 2 * states, 2));
  const config::Run sharded = small(4, "--pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 ");
  EXPECT_TRUE(fits(sharded, enough + states / 2, 4)) << "together they hold one model";
  EXPECT_FALSE(fits(sharded, states, 4));
  EXPECT_TRUE(fits(sharded, states, 2)) << "half of them on this machine";
}

TEST(RequireMemory, ModelPurposeCountsWeightsOnly) {
  const config::Run run = small(1);
  EXPECT_TRUE(fits(run, 4 * kElements, 1, rules::Purpose::kModel));
  EXPECT_FALSE(fits(run, 4 * kElements - 1, 1, rules::Purpose::kModel));
}

std::string error_of(const config::Run& run) {
  try {
    require_memory(run, rules::Purpose::kTrain, 1, std::int64_t{1} << 35);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "it fits";
}

TEST(RequireMemory, RejectsSizesThatOverflowIntegers) {
  EXPECT_THAT(error_of(small(1, "--hidden-size 200000000 --num-layers 1000000 ")),
              AllOf(HasSubstr("memory: "), HasSubstr("of weights for 1 rank, and 32.0 GiB of memory"),
                    HasSubstr("lower --hidden-size or --num-layers")));
  EXPECT_THAT(error_of(small(1, "--num-layers 1000000 ")), HasSubstr("of weights"));
  EXPECT_THAT(error_of(small(1,
                             "--seq-length 1000000000 --max-position-embeddings 1000000000 "
                             "--position-embedding-type rope ")),
              AllOf(HasSubstr("of activations"), HasSubstr("lower --micro-batch-size or --seq-length")));
}

}  // namespace
}  // namespace colonnade::job
