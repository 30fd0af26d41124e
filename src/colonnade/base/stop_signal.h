// SIGINT, SIGTERM and SIGHUP: the end of a program that has nothing to save yet, then a question that it asks
// at places where it can stop and save.
#pragma once

#include <signal.h>

#include <thread>

namespace colonnade {

/// Whether this process ignores the signal, as `nohup` makes it ignore SIGHUP.
bool is_ignored(int signal);

/// From now on a write to a pipe or socket whose reader is gone is an error of the call; by default it ends
/// the process by SIGPIPE. A handler that is there stays.
void ignore_broken_pipes();

/// For a program that was started with SIGINT, SIGTERM and SIGHUP blocked, as the executable `colonnade` is,
/// so that none gets lost while it is loaded, and that makes no StopSignals: those that have come meanwhile
/// take effect at once.
void unblock_stop_signals();

/// While it lives, SIGINT, SIGTERM and SIGHUP ask the program to stop, also those that came before while they
/// were blocked. An ignored SIGHUP stays so (`nohup`); SIGPIPE is ignored from now on, unless it has a
/// handler, so that a pipe of the output whose reader is gone does not end the program. One at a time per
/// process: a handler can reach nothing but static variables. Make it before anything that takes time.
///
/// Until remember() is called there is nothing to save: the first signal ends the process at once with
/// exit code 5 and a line that says so, also while it waits in a rendezvous or a collective. Files are
/// then left as by SIGKILL: what is written under a temporary name and renamed stays whole.
///
/// From then on signals are only remembered, and interrupted system calls are restarted. A SIGINT that
/// comes more than a second after the first signal ends the process: somebody presses Ctrl-C again.
/// Other repeats are ignored, for launchers, schedulers and `timeout` often send the same request twice,
/// and it must not interrupt the save that it asked for.
///
///   StopSignals stop;
///   start_up();      // meets the other ranks, builds, restores
///   stop.remember();
///   for (...) { step(); if (any_rank(stop.requested() != 0)) { save(); return kExitStopped; } }
///
/// Ranks need not get the signal in the same step: let all of them agree before they stop.
///
/// A thread of its own takes the signals; the thread that makes this, and those made from then on, never do.
/// For a handler runs on the stack of the thread that it interrupts, and oneDNN's products of before March
/// 2026 (https://github.com/uxlfoundation/oneDNN/issues/4845) keep the stack pointer in a block of the heap:
/// what lies before the block would be overwritten. Handlers of other signals must run on a stack of their
/// own (sigaltstack, SA_ONSTACK) or such threads must block these.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// From now on there is something to save.
  void remember();
  /// The signal that asked to stop since remember(), or 0.
  [[nodiscard]] int requested() const;

 private:
  sigset_t before_{};  ///< which signals the thread blocked that made this
  std::jthread taker_;
};

}  // namespace colonnade
