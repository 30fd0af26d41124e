// Placement of virtual stages: loop and V, both one-to-one.
#include "colonnade/schedule/placement.h"

#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "colonnade/config/parallel.h"

namespace colonnade::schedule {
namespace {

void expect_one_to_one(const Placement& placement, int ranks, int chunks) {
  EXPECT_EQ(placement.ranks(), ranks);
  EXPECT_EQ(placement.chunks(), chunks);
  ASSERT_EQ(placement.stages(), ranks * chunks);
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const StageLocation location = placement.location(stage);
    EXPECT_EQ(placement.stage(location.rank, location.chunk), stage);
  }
  for (int rank = 0; rank < ranks; ++rank)
    for (int chunk = 1; chunk < chunks; ++chunk)
      EXPECT_LT(placement.stage(rank, chunk - 1), placement.stage(rank, chunk));
}

TEST(Placement, LoopIsMegatronsOrder) {
  for (const int ranks : {1, 2, 5})
    for (const int chunks : {1, 3}) {
      const Placement loop = Placement::loop(ranks, chunks);
      expect_one_to_one(loop, ranks, chunks);
      for (int stage = 0; stage < loop.stages(); ++stage) {
        EXPECT_EQ(loop.location(stage), (StageLocation{stage % ranks, stage / ranks}));
        EXPECT_EQ(loop.crosses(stage), ranks > 1 && stage + 1 < loop.stages());
      }
    }
}

TEST(Placement, VeeDescendsAndAscends) {
  for (const int ranks : {1, 2, 5}) {
    const Placement vee = Placement::vee(ranks);
    expect_one_to_one(vee, ranks, 2);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(vee.stage(rank, 0), rank);
      EXPECT_EQ(vee.stage(rank, 1), 2 * ranks - 1 - rank);
    }
    // No message is sent at the turn, before the first stage or after the last one.
    for (int stage = -1; stage < 2 * ranks; ++stage)
      EXPECT_EQ(vee.crosses(stage), stage >= 0 && stage != ranks - 1 && stage != 2 * ranks - 1) << stage;
  }
}

TEST(Placement, FollowsTheScheduleOfTheSettings) {
  config::Parallel p;
  p.pipeline_model_parallel_size = 3;
  EXPECT_EQ(placement_of(p, 2), Placement::loop(3, 2));
  EXPECT_EQ(default_chunks(p), 1);
  for (const char* name : {"zb-v", "dualpipe-v"}) {
    p.pipeline_schedule = name;
    EXPECT_EQ(default_chunks(p), 2);
    EXPECT_EQ(placement_of(p, 2), Placement::vee(3));
    EXPECT_THROW(placement_of(p, 1), ConfigError);
    EXPECT_THROW(placement_of(p, 3), ConfigError);
  }
  p.pipeline_schedule = "zb-h1";
  EXPECT_EQ(default_chunks(p), 1);
  EXPECT_EQ(placement_of(p, 1), Placement::loop(3, 1));
  EXPECT_THROW(Placement::loop(0, 1), ConfigError);
  EXPECT_THROW(Placement::vee(0), ConfigError);
}

}  // namespace
}  // namespace colonnade::schedule
