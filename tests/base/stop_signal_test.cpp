// The first signal is remembered, repeats are ignored, Ctrl-C again ends the process.
#include "colonnade/base/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

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

TEST(StopSignals, TheSameRequestSentTwiceEndsNothing) {
  const StopSignals stop;
  for (const int signal : {SIGTERM, SIGTERM, SIGINT}) ::raise(signal);
  EXPECT_EQ(stop.requested(), SIGTERM);
}

TEST(StopSignals, CtrlCAgainEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignals stop;
        ::raise(SIGINT);
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        ::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(StopSignals, ThereIsOneAtATime) {
  const StopSignals stop;
  EXPECT_THROW(StopSignals(), Error);
}

}  // namespace
}  // namespace colonnade
