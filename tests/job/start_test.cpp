// Which GPU a rank takes; all else of a start is tested with real processes (tests/e2e).
#include "colonnade/job/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"

namespace colonnade::job {
namespace {

launch::Place at_local_rank(int local_rank, bool own_gpu = false) {
  launch::Place place;
  place.local_rank = local_rank;
  place.own_gpu = own_gpu;
  return place;
}

TEST(ChooseDevice, NcclTakesOneGpuARankAndGlooSharesThem) {
  std::vector<int> nccl, gloo;
  for (int rank = 0; rank < 3; ++rank) nccl.push_back(choose_gpu(at_local_rank(rank), 3, "nccl"));
  for (int rank = 0; rank < 5; ++rank) gloo.push_back(choose_gpu(at_local_rank(rank), 2, "gloo"));
  EXPECT_THAT(nccl, testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(gloo, testing::ElementsAre(0, 1, 0, 1, 0));
}

TEST(ChooseDevice, AGpuThatTheLauncherGivesTheRankAloneIsNumberZero) {
  for (const char* backend : {"nccl", "gloo"}) {
    EXPECT_EQ(choose_gpu(at_local_rank(3, /*own_gpu=*/true), 1, backend), 0);
    EXPECT_EQ(choose_gpu(at_local_rank(3, /*own_gpu=*/true), 4, backend), 3) << "it sees all of them";
  }
}

TEST(ChooseDevice, TooFewGpusAreAnErrorThatNamesTheWayOut) {
  try {
    choose_gpu(at_local_rank(1), 1, "nccl");
    FAIL() << "two ranks on one GPU under nccl";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("got local rank 1 and 1 GPUs here"),
                                             testing::HasSubstr("--distributed-backend gloo")));
  }
  for (const char* backend : {"nccl", "gloo"})
    EXPECT_THROW(choose_gpu(at_local_rank(0), 0, backend), ConfigError);
}

}  // namespace
}  // namespace colonnade::job
