// Phase times: nothing is counted twice and nothing is lost.
#include "colonnade/train/timers.h"

#include <gtest/gtest.h>

#include <thread>

namespace colonnade::train {
namespace {

void rest(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(Timers, TheInnerPhaseStopsTheOuterOne) {
  Timers timers;
  const auto begin = Timers::Clock::now();
  {
    const auto outer = timers.measure(Phase::kForwardBackward);
    rest(5);
    {
      const auto inner = timers.measure(Phase::kCommunication);
      rest(20);
    }
    rest(5);
  }
  const double wall = std::chrono::duration<double>(Timers::Clock::now() - begin).count();
  rest(10);  // in no phase
  const PhaseTimes times = timers.take();
  EXPECT_GE(times[Phase::kCommunication], 0.020);
  EXPECT_GE(times[Phase::kForwardBackward], 0.010);
  EXPECT_LE(times.total(), wall);
  EXPECT_NEAR(times.total(), wall, 0.005);
}

TEST(Timers, TakeStartsAnewAndSplitsAnOpenPhase) {
  Timers timers;
  const auto open = timers.measure(Phase::kData);
  rest(5);
  EXPECT_GE(timers.take()[Phase::kData], 0.005);
  const PhaseTimes second = timers.take();
  EXPECT_LT(second[Phase::kData], 0.005);
}

TEST(Timers, MovesTimeBetweenPhases) {
  Timers timers;
  timers.move(Phase::kForwardBackward, Phase::kCommunication, 2);
  PhaseTimes times = timers.take();
  EXPECT_EQ(times[Phase::kCommunication], 2);
  EXPECT_EQ(times.total(), 0);
  times += PhaseTimes{{1, 1, 1, 1, 1, 1}};
  EXPECT_EQ(times[Phase::kForwardBackward], -1);
  EXPECT_DOUBLE_EQ(times.share(Phase::kCommunication, 12), 0.25);
}

}  // namespace
}  // namespace colonnade::train
