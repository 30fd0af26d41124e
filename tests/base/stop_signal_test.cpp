// A signal ends the process while there is nothing to save; later the first one is remembered, repeats are
// ignored, Ctrl-C again ends the process.
#include "colonnade/base/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "colonnade/base/error.h"

namespace colonnade {
namespace {

/// To the process, as from outside; and time to take it.
void send(int signal) {
  ::kill(::getpid(), signal);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

TEST(StopSignals, BeforeThereIsSomethingToSaveASignalEndsTheProcess) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(
        {
          const StopSignals stop;
          send(signal);
        },
        testing::ExitedWithCode(kExitStopped), "before the first step; nothing had to be saved");
  }
}

/// As when it comes while the program is loaded.
void block_and_send(int signal) {
  sigset_t set{};
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  send(signal);
}

TEST(StopSignals, ASignalThatCameWhileItWasBlockedEndsTheProcess) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(
        {
          block_and_send(signal);
          const StopSignals stop;
          std::this_thread::sleep_for(std::chrono::seconds(5));
        },
        testing::ExitedWithCode(kExitStopped), "before the first step; nothing had to be saved");
    EXPECT_EXIT(
        {
          block_and_send(signal);
          unblock_stop_signals();
        },
        testing::KilledBySignal(signal), "");
  }
}

TEST(StopSignals, TheFirstSignalIsRemembered) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    StopSignals stop;
    stop.remember();
    EXPECT_EQ(stop.requested(), 0);
    send(signal);
    EXPECT_EQ(stop.requested(), signal);
  }
}

TEST(StopSignals, AHangupThatIsIgnoredStaysSo) {
  EXPECT_EXIT(
      {
        ::signal(SIGHUP, SIG_IGN);
        StopSignals stop;
        send(SIGHUP);
        stop.remember();
        send(SIGHUP);
        ::_exit(stop.requested() == 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(StopSignals, AReaderOfTheOutputThatIsGoneEndsNothing) {
  EXPECT_EXIT(
      {
        const StopSignals stop;
        int ends[2];
        if (::pipe(ends) != 0) ::_exit(2);
        ::close(ends[0]);
        ::_exit(::write(ends[1], "x", 1) < 0 && errno == EPIPE ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(StopSignals, TheSameRequestSentTwiceEndsNothing) {
  StopSignals stop;
  stop.remember();
  for (const int signal : {SIGTERM, SIGTERM, SIGINT}) send(signal);
  EXPECT_EQ(stop.requested(), SIGTERM);
}

TEST(StopSignals, CtrlCAgainEndsTheProcess) {
  EXPECT_EXIT(
      {
        StopSignals stop;
        stop.remember();
        send(SIGINT);
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        send(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

bool blocks(int signal) {
  sigset_t blocked{};
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return ::sigismember(&blocked, signal) == 1;
}

TEST(StopSignals, InterruptNoThreadThatComputes) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_FALSE(blocks(signal));
    {
      const StopSignals stop;
      EXPECT_TRUE(blocks(signal));
      bool another = false;
      std::jthread([&] { another = blocks(signal); }).join();
      EXPECT_TRUE(another);
    }
    EXPECT_FALSE(blocks(signal));
  }
}

TEST(StopSignals, ThereIsOneAtATime) {
  const StopSignals stop;
  EXPECT_THROW(StopSignals(), Error);
}

}  // namespace
}  // namespace colonnade
