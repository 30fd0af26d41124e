// Seconds per phase: their names and addition.
#include "colonnade/record/phase_times.h"

#include <gtest/gtest.h>

#include <set>

namespace colonnade::record {
namespace {

TEST(PhaseTimes, AddPhaseByPhase) {
  PhaseTimes times{{1, 2, 3, 4, 5, 6}};
  times += PhaseTimes{{10, 0, 0, 0, 0, 0.5}};
  EXPECT_EQ(times[Phase::kData], 11);
  EXPECT_EQ(times[Phase::kForwardBackward], 2);
  EXPECT_EQ(times[Phase::kEvaluate], 6.5);
  EXPECT_EQ(times.total(), 31.5);
}

TEST(PhaseTimes, EveryPhaseHasAName) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kPhases; ++i) names.insert(phase_name(static_cast<Phase>(i)));
  EXPECT_EQ(names.size(), kPhases);
  EXPECT_FALSE(names.contains(""));
  EXPECT_EQ(phase_name(Phase::kCheckpoint), "checkpoint");
  EXPECT_EQ(phase_name(Phase::kEvaluate), "evaluate");
}

}  // namespace
}  // namespace colonnade::record
