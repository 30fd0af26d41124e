// See stop_signal.h.
#include "colonnade/base/stop_signal.h"

#include <signal.h>

#include <atomic>

#include "colonnade/base/error.h"

namespace colonnade {
namespace {

std::atomic<int> received{0};     // NOLINT(*-non-const-global-variables): written by the handler
std::atomic<bool> in_use{false};  // NOLINT(*-non-const-global-variables)
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void remember(int signal) { received.store(signal, std::memory_order_relaxed); }

}  // namespace

StopSignals::StopSignals() {
  COL_CHECK(!in_use.exchange(true), "StopSignals: one at a time per process; got a second");
  received = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

StopSignals::~StopSignals() {
  for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
  in_use = false;
}

int StopSignals::requested() const { return received.load(std::memory_order_relaxed); }

}  // namespace colonnade
