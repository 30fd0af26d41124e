// SIGINT and SIGTERM as a question that the program asks at places where it can stop and save.
#pragma once

namespace colonnade {

/// While it lives, the first SIGINT or SIGTERM is only remembered; after that the same signal has its
/// default effect again, so that the second one ends the process. Interrupted system calls are
/// restarted. One at a time per process: a handler can reach nothing but a static variable.
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
