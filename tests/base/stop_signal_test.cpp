// A signal ends the process while there is nothing to save; later the first one is remembered, repeats are
// ignored, Ctrl-C again ends the process.
#include "colonnade/base/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "colonnade/base/error.h"

namespace colonnade {
namespace {

TEST(StopSignals, BeforeThereIsSomethingToSaveASignalEndsTheProcess) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const StopSignals stop;
          ::raise(signal);
        },
        testing::ExitedWithCode(kExitStopped), "before the first step; nothing had to be saved");
  }
}

TEST(StopSignals, TheFirstSignalIsRemembered) {
  for (const int signal : {SIGINT, SIGTERM}) {
    StopSignals stop;
    stop.remember();
    EXPECT_EQ(stop.requested(), 0);
    ::raise(signal);
    EXPECT_EQ(stop.requested(), signal);
  }
}

TEST(StopSignals, TheSameRequestSentTwiceEndsNothing) {
  StopSignals stop;
  stop.remember();
  for (const int signal : {SIGTERM, SIGTERM, SIGINT}) ::raise(signal);
  EXPECT_EQ(stop.requested(), SIGTERM);
}

TEST(StopSignals, CtrlCAgainEndsTheProcess) {
  EXPECT_EXIT(
      {
        StopSignals stop;
        stop.remember();
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
