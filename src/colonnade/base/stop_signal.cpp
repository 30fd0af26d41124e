// See stop_signal.h.
#include "colonnade/base/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"

namespace colonnade {
namespace {

// NOLINTBEGIN(*-non-const-global-variables): a handler can access nothing else
std::atomic<int> received{0};
std::atomic<std::int64_t> received_ns{0};
std::atomic<bool> in_use{false};
std::atomic<bool> hangup_ignored{false};  // under nohup
// NOLINTEND(*-non-const-global-variables)
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

/// Handler. Async-signal-safe.
extern "C" void exit_immediately(int signal) {
  const std::string_view name = signal == SIGINT ? "SIGINT" : signal == SIGHUP ? "SIGHUP" : "SIGTERM";
  for (const std::string_view part : {std::string_view("stopped by "), name,
                                      std::string_view(" before the first step; nothing had to be saved\n")})
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, part.data(), part.size());
  ::_exit(kExitStopped);
}

extern "C" void record_signal(int signal) {
  constexpr std::int64_t kSameRequestNs = 1'000'000'000;
  const std::int64_t now = monotonic_ns();
  if (received.load() == 0) {
    received_ns = now;
    received = signal;
  } else if (signal == SIGINT && now - received_ns.load() > kSameRequestNs) {
    ::signal(SIGINT, SIG_DFL);
    ::raise(SIGINT);  // takes effect when this handler returns
  }
}

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};

void install_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int signal : kStopSignals)
    if (signal != SIGHUP || !hangup_ignored) ::sigaction(signal, &action, nullptr);
}

sigset_t stop_signals() {
  sigset_t set{};
  ::sigemptyset(&set);
  for (const int signal : kStopSignals) ::sigaddset(&set, signal);
  return set;
}

}  // namespace

bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void ignore_broken_pipes() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

void unblock_stop_signals() {
  const sigset_t signals = stop_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

namespace {

/// Body of the signal thread: waits with the stop signals unblocked, so that handlers run on its stack.
void receive_signals(const std::stop_token& ended) {
  unblock_stop_signals();
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any never;
  never.wait(lock, ended, [] { return false; });
}

}  // namespace

StopSignals::StopSignals() {
  COL_CHECK(!in_use.exchange(true), "StopSignals must be unique in a process; got a second one");
  received = 0;
  hangup_ignored = is_ignored(SIGHUP);
  ignore_broken_pipes();
  install_handler(exit_immediately);
  const sigset_t signals = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, &previous_mask_);
  signal_thread_ = std::jthread(receive_signals);
}

void StopSignals::defer() { install_handler(record_signal); }

StopSignals::~StopSignals() {
  signal_thread_ = {};
  install_handler(SIG_DFL);
  ::pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
  in_use = false;
}

int StopSignals::requested() const { return received.load(std::memory_order_relaxed); }

}  // namespace colonnade
