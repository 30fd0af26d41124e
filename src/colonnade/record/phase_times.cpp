// See phase_times.h.
#include "colonnade/record/phase_times.h"

#include <numeric>

namespace colonnade::record {

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, kPhases> kNames{"data",      "forward-backward", "communication",
                                                         "optimizer", "checkpoint",       "evaluate"};
  return kNames[static_cast<std::size_t>(phase)];
}

double PhaseTimes::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

PhaseTimes& PhaseTimes::operator+=(const PhaseTimes& other) {
  for (std::size_t i = 0; i < kPhases; ++i) seconds[i] += other.seconds[i];
  return *this;
}

}  // namespace colonnade::record
