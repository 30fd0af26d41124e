// One clock for all that asks how long a schedule takes. Private to plan/: simulate() draws what it says,
// pipeline_times() looks at the ends of chunks.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/schedule/clock.h"

namespace colonnade::schedule {

/// Every rank works as soon as it can, transfers occupy nobody.
class ScheduleClock {
 public:
  /// `costs` by virtual stage; `transfer` from one rank to another.
  ScheduleClock(const Schedule& schedule, const std::vector<StageCost>& costs, double transfer)
      : s_(schedule),
        costs_(costs),
        transfer_(transfer),
        activation_(values(), kNever),
        gradient_(values(), kNever),
        next_(s_.programs.size(), 0),
        now_(s_.programs.size(), 0) {
    COL_CHECK(costs.size() == static_cast<std::size_t>(s_.stages()),
              "schedule: every virtual stage must have a cost; got {} for {}; correct the caller",
              costs.size(), s_.stages());
  }

  /// Calls worked(rank, action, begin, end) for each action that takes a rank's time, in its order. Throws
  /// Error when the schedule does not end.
  template <typename Worked>
  void run(const Worked& worked) {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t rank = 0; rank < s_.programs.size(); ++rank)
        progress = advance(rank, worked) || progress;
    }
    for (std::size_t rank = 0; rank < s_.programs.size(); ++rank)
      COL_CHECK(
          next_[rank] == s_.programs[rank].size(),
          "schedule: every rank must reach its end; rank {} stopped at action {} of {}; run check() on it",
          rank, next_[rank], s_.programs[rank].size());
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  [[nodiscard]] std::size_t values() const {
    return static_cast<std::size_t>(s_.stages()) * static_cast<std::size_t>(s_.microbatches);
  }
  /// Arrival time of the input (or gradient) of a stage.
  double& at(std::vector<double>& arrivals, std::size_t stage, const Action& a) {
    return arrivals[stage * static_cast<std::size_t>(s_.microbatches) +
                    static_cast<std::size_t>(a.microbatch)];
  }
  [[nodiscard]] static double cost_of(Do act, const StageCost& cost) {
    switch (act) {
      case Do::kForward:
        return cost.forward;
      case Do::kBackward:
        return cost.backward;
      case Do::kBackwardInput:
        return cost.backward - cost.weight;
      default:
        return cost.weight;
    }
  }

  template <typename Worked>
  bool advance(std::size_t rank, const Worked& worked) {
    const std::size_t begin = next_[rank];
    const Program& program = s_.programs[rank];
    while (next_[rank] < program.size() && perform(rank, program[next_[rank]], worked)) ++next_[rank];
    return next_[rank] > begin;
  }

  template <typename Worked>
  bool perform(std::size_t rank, const Action& a, const Worked& worked) {
    const auto stage = static_cast<std::size_t>(s_.stage(static_cast<int>(rank), a));
    double& now = now_[rank];
    if (is_receive(a.act)) {
      const double arrival = at(a.act == Do::kRecvActivation ? activation_ : gradient_, stage, a);
      if (arrival == kNever) return false;
      now = std::max(now, arrival);
    } else if (a.act == Do::kSendActivation) {
      at(activation_, stage + 1, a) = now + transfer_ * costs_[stage].message;
    } else if (a.act == Do::kSendGradient) {
      at(gradient_, stage - 1, a) = now + transfer_ * costs_[stage - 1].message;
    } else {
      const double begin = now;
      now += cost_of(a.act, costs_[stage]);
      worked(static_cast<int>(rank), a, begin, now);
    }
    return true;
  }

  const Schedule& s_;
  const std::vector<StageCost>& costs_;
  double transfer_;
  std::vector<double> activation_, gradient_;
  std::vector<std::size_t> next_;
  std::vector<double> now_;
};

}  // namespace colonnade::schedule
