// SIGINT, SIGTERM and SIGHUP: they end the program while it has nothing to save; afterwards they only set a
// flag that the program polls at points where it can save and stop.
#pragma once

#include <signal.h>

#include <thread>

namespace colonnade {

/// Whether this process ignores the signal, as `nohup` makes it ignore SIGHUP.
bool is_ignored(int signal);

/// Ignores SIGPIPE: a write to a pipe or socket without a reader then fails with EPIPE. An installed handler
/// is kept.
void ignore_broken_pipes();

/// Unblocks SIGINT, SIGTERM and SIGHUP; pending ones take effect at once. The launcher starts `colonnade`
/// with them blocked so that none is lost while the program loads. For commands that do not use StopSignals.
void unblock_stop_signals();

/// Handles SIGINT, SIGTERM and SIGHUP as stop requests while it exists, including signals that were blocked
/// and pending. An ignored SIGHUP stays ignored (`nohup`). SIGPIPE is ignored from now on unless it has a
/// handler, so that a closed output pipe does not end the program. Only one instance per process: a handler
/// can access static variables only. Construct it before any slow initialization.
///
/// Until defer() is called there is nothing to save: the first signal ends the process at once with exit
/// code 5 and a message, even while it waits in a rendezvous or a collective. Files are left as by SIGKILL;
/// atomic writes (temporary file, then rename) stay intact.
///
/// After defer() signals are only recorded, and interrupted system calls are restarted. A SIGINT more than
/// a second after the first signal ends the process (second Ctrl-C). Other repeats are ignored: launchers,
/// schedulers and `timeout` often send the same request twice, which must not interrupt the save.
///
///   StopSignals stop;
///   start_up();      // rendezvous, model construction, checkpoint load
///   stop.defer();
///   for (...) { step(); if (any_rank(stop.requested() != 0)) { save(); return kExitStopped; } }
///
/// Ranks may receive the signal in different steps: all of them must agree before they stop.
///
/// A dedicated thread receives the signals; the constructing thread and threads started later block them. A
/// handler runs on the stack of the interrupted thread, and oneDNN GEMMs before March 2026
/// (https://github.com/uxlfoundation/oneDNN/issues/4845) point the stack pointer into a heap block, so a
/// handler would overwrite the memory before that block. Handlers of other signals must use an alternate
/// stack (sigaltstack, SA_ONSTACK), or threads that compute must block those signals.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// From now on there is something to save: signals are recorded.
  void defer();
  /// The first signal received since defer(), or 0.
  [[nodiscard]] int requested() const;

 private:
  sigset_t previous_mask_{};  ///< signal mask of the constructing thread
  std::jthread signal_thread_;
};

}  // namespace colonnade
