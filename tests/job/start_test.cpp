// Choice of a rank's GPU; the rest of start is tested with real processes (tests/e2e).
#include "colonnade/job/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"

namespace colonnade::job {
namespace {

launch::RankEnvironment at_local_rank(int local_rank, bool exclusive_gpu = false) {
  launch::RankEnvironment place;
  place.local_rank = local_rank;
  place.exclusive_gpu = exclusive_gpu;
  return place;
}

TEST(ChooseDevice, NcclUsesOneGpuPerRankAndGlooSharesThem) {
  std::vector<int> nccl, gloo;
  for (int rank = 0; rank < 3; ++rank) nccl.push_back(choose_gpu(at_local_rank(rank), 3, "nccl"));
  for (int rank = 0; rank < 5; ++rank) gloo.push_back(choose_gpu(at_local_rank(rank), 2, "gloo"));
  EXPECT_THAT(nccl, testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(gloo, testing::ElementsAre(0, 1, 0, 1, 0));
}

TEST(ChooseDevice, OwnGpuOfTheRankHasIndexZero) {
  for (const char* backend : {"nccl", "gloo"}) {
    EXPECT_EQ(choose_gpu(at_local_rank(3, /*exclusive_gpu=*/true), 1, backend), 0);
    EXPECT_EQ(choose_gpu(at_local_rank(3, /*exclusive_gpu=*/true), 4, backend), 3) << "it sees all of them";
  }
}

TEST(ChooseDevice, TooFewGpusAreAnErrorWithAFix) {
  try {
    choose_gpu(at_local_rank(1), 1, "nccl");
    FAIL() << "two ranks on one GPU under nccl";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("got local rank 1 and 1 GPUs on this machine"),
                               testing::HasSubstr("--distributed-backend gloo")));
  }
  for (const char* backend : {"nccl", "gloo"})
    EXPECT_THROW(choose_gpu(at_local_rank(0), 0, backend), ConfigError);
}

}  // namespace
}  // namespace colonnade::job
