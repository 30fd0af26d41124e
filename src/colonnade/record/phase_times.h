// Time of a run by phase, on this rank.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace colonnade::record {

enum class Phase { kData, kForwardBackward, kCommunication, kOptimizer, kCheckpoint, kEvaluate };
inline constexpr std::size_t kPhases = 6;
/// Phases of every step.
inline constexpr std::array kStepPhases{Phase::kData, Phase::kForwardBackward, Phase::kCommunication,
                                        Phase::kOptimizer};

/// "data", "forward-backward", "communication", "optimizer", "checkpoint", "evaluate".
std::string_view phase_name(Phase phase);

/// Seconds per phase.
struct PhaseTimes {
  std::array<double, kPhases> seconds{};

  double& operator[](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
  double operator[](Phase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
  [[nodiscard]] double total() const;
  PhaseTimes& operator+=(const PhaseTimes& other);
};

}  // namespace colonnade::record
