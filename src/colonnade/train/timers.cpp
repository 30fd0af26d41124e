// See timers.h.
#include "colonnade/train/timers.h"

#include <numeric>
#include <utility>

namespace colonnade::train {

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, kPhases> kNames{"data",      "forward-backward", "communication",
                                                         "optimizer", "checkpoint",       "evaluate"};
  return kNames[static_cast<std::size_t>(phase)];
}

double PhaseTimes::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

double PhaseTimes::share(Phase phase, double wall) const { return wall > 0 ? (*this)[phase] / wall : 0.0; }

PhaseTimes& PhaseTimes::operator+=(const PhaseTimes& other) {
  for (std::size_t i = 0; i < kPhases; ++i) seconds[i] += other.seconds[i];
  return *this;
}

Timers::Scope::Scope(Timers& timers, Phase phase) : timers_(timers), outer_(timers.current_) {
  timers_.switch_to(static_cast<int>(phase));
}

Timers::Scope::~Scope() { timers_.switch_to(outer_); }

void Timers::move(Phase from, Phase to, double seconds) {
  times_[from] -= seconds;
  times_[to] += seconds;
}

PhaseTimes Timers::take() {
  switch_to(current_);
  return std::exchange(times_, {});
}

void Timers::switch_to(int phase) {
  const auto now = Clock::now();
  if (current_ != kNone)
    times_.seconds[static_cast<std::size_t>(current_)] += std::chrono::duration<double>(now - since_).count();
  current_ = phase;
  since_ = now;
}

}  // namespace colonnade::train
