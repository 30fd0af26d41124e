// Stop signals: the process exits while there is nothing to save; later the first signal is recorded, repeats
// are ignored, and a second Ctrl-C ends the process.
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

/// Sends the signal to the whole process and waits for its delivery.
void send(int signal) {
  ::kill(::getpid(), signal);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

TEST(StopSignals, SignalEndsTheProcessWhileThereIsNothingToSave) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(
        {
          const StopSignals stop;
          send(signal);
        },
        testing::ExitedWithCode(kExitStopped), "before the first step; nothing had to be saved");
  }
}

/// Emulates a signal that arrives while the program loads.
void block_and_send(int signal) {
  sigset_t set{};
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  send(signal);
}

TEST(StopSignals, PendingSignalEndsTheProcessOnceUnblocked) {
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

TEST(StopSignals, FirstSignalIsRecorded) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    StopSignals stop;
    stop.defer();
    EXPECT_EQ(stop.requested(), 0);
    send(signal);
    EXPECT_EQ(stop.requested(), signal);
  }
}

TEST(StopSignals, IgnoredSighupStaysIgnored) {
  EXPECT_EXIT(
      {
        ::signal(SIGHUP, SIG_IGN);
        StopSignals stop;
        send(SIGHUP);
        stop.defer();
        send(SIGHUP);
        ::_exit(stop.requested() == 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(StopSignals, ClosedOutputPipeDoesNotEndTheProcess) {
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

TEST(StopSignals, RepeatedRequestsAreIgnored) {
  StopSignals stop;
  stop.defer();
  for (const int signal : {SIGTERM, SIGTERM, SIGINT}) send(signal);
  EXPECT_EQ(stop.requested(), SIGTERM);
}

TEST(StopSignals, SecondCtrlCEndsTheProcess) {
  EXPECT_EXIT(
      {
        StopSignals stop;
        stop.defer();
        send(SIGINT);
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        send(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

bool is_blocked(int signal) {
  sigset_t blocked{};
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return ::sigismember(&blocked, signal) == 1;
}

TEST(StopSignals, AreBlockedInComputingThreads) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_FALSE(is_blocked(signal));
    {
      const StopSignals stop;
      EXPECT_TRUE(is_blocked(signal));
      bool blocked_in_new_thread = false;
      std::jthread([&] { blocked_in_new_thread = is_blocked(signal); }).join();
      EXPECT_TRUE(blocked_in_new_thread);
    }
    EXPECT_FALSE(is_blocked(signal));
  }
}

TEST(StopSignals, OnlyOneInstanceMayExist) {
  const StopSignals stop;
  EXPECT_THROW(StopSignals(), Error);
}

}  // namespace
}  // namespace colonnade
