// The first signal is remembered, the second ends the process.
#include "colonnade/base/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "colonnade/base/error.h"

namespace colonnade {
namespace {

TEST(StopSignals, TheFirstSignalIsRemembered) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const StopSignals stop;
    EXPECT_EQ(stop.requested(), 0);
    ::raise(signal);
    EXPECT_EQ(stop.requested(), signal);
  }
}

TEST(StopSignals, TheSecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignals stop;
        ::raise(SIGTERM);
        ::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(StopSignals, ThereIsOneAtATime) {
  const StopSignals stop;
  EXPECT_THROW(StopSignals(), Error);
}

}  // namespace
}  // namespace colonnade
