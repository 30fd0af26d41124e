// SIGINT and SIGTERM as a question that the program asks at places where it can stop and save.
#pragma once

namespace colonnade {

/// While it lives, SIGINT and SIGTERM are only remembered; interrupted system calls are restarted. A
/// SIGINT that comes more than a second after the first signal ends the process: somebody presses
/// Ctrl-C again. Other repeats are ignored, for launchers, schedulers and `timeout` often send the same
/// request twice, and it must not interrupt the save that it asked for. One at a time per process: a
/// handler can reach nothing but static variables.
///
///   StopSignals stop;
///   for (...) { step(); if (any_rank(stop.requested() != 0)) { save(); throw StopRequested("..."); } }
///
/// Ranks need not get the signal in the same step: let all of them agree before they stop.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that asked to stop, or 0.
  [[nodiscard]] int requested() const;
};

}  // namespace colonnade
