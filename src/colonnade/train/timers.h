// Where the time of a step goes: one stopwatch per phase.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>

namespace colonnade::train {

enum class Phase { kData, kForwardBackward, kCommunication, kOptimizer, kCheckpoint, kEvaluate };
inline constexpr std::size_t kPhases = 6;

/// "data", "forward-backward", "communication", "optimizer", "checkpoint", "evaluate".
std::string_view phase_name(Phase phase);

/// Seconds per phase.
struct PhaseTimes {
  std::array<double, kPhases> seconds{};

  double& operator[](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
  double operator[](Phase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
  [[nodiscard]] double total() const;
  /// Part of the phase in `wall` seconds, 0 to 1; 0 when wall is 0.
  [[nodiscard]] double share(Phase phase, double wall) const;
  PhaseTimes& operator+=(const PhaseTimes& other);
};

/// Counts the time of the phase it is in. Phases nest: the inner one stops the outer one's watch, so
/// no second is counted twice. One thread only. Time on a GPU counts where the host waits for it.
class Timers {
 public:
  using Clock = std::chrono::steady_clock;

  /// Counts the life of the object for a phase.
  class Scope {
   public:
    Scope(Timers& timers, Phase phase);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Timers& timers_;
    int outer_;
  };
  [[nodiscard]] Scope measure(Phase phase) { return {*this, phase}; }

  /// Adds time measured elsewhere, such as communication that a group has counted itself, and takes it
  /// from the phase in which it was spent.
  void move(Phase from, Phase to, double seconds);

  /// The times since the last call.
  PhaseTimes take();

 private:
  static constexpr int kNone = -1;
  void switch_to(int phase);

  PhaseTimes times_;
  int current_ = kNone;
  Clock::time_point since_ = Clock::now();
};

}  // namespace colonnade::train
