// Clock that runs a schedule. Private to schedule/: simulate() records the timeline, pipeline_times() the
// ends of chunks.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/schedule/clock.h"

namespace colonnade::schedule {

/// Starts every action as soon as possible; transfers occupy no rank.
class ScheduleClock {
 public:
  /// `costs` by virtual stage; `transfer`: duration of a message between ranks.
  ScheduleClock(const Schedule& schedule, const std::vector<StageCost>& costs, double transfer)
      : s_(schedule),
        costs_(costs),
        transfer_(transfer),
        activation_(values(), kNever),
        gradient_(values(), kNever),
        next_(s_.programs.size(), 0),
        now_(s_.programs.size(), 0) {
    COL_CHECK(costs.size() == static_cast<std::size_t>(s_.stages()),
              "schedule must have a cost per virtual stage; got {} for {}; fix the caller", costs.size(),
              s_.stages());
  }

  /// Calls on_compute(rank, action, begin, end) for each compute action, in the order of its rank. Throws
  /// Error on a deadlock.
  template <typename OnCompute>
  void run(const OnCompute& on_compute) {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t rank = 0; rank < s_.programs.size(); ++rank)
        progress = advance(rank, on_compute) || progress;
    }
    for (std::size_t rank = 0; rank < s_.programs.size(); ++rank)
      COL_CHECK(next_[rank] == s_.programs[rank].size(),
                "schedule must not deadlock; got rank {} stopped at action {} of {}; run check() on it", rank,
                next_[rank], s_.programs[rank].size());
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  [[nodiscard]] std::size_t values() const {
    return static_cast<std::size_t>(s_.stages()) * static_cast<std::size_t>(s_.microbatches);
  }
  /// Arrival time of the input (or output gradient) of a stage.
  double& at(std::vector<double>& arrivals, std::size_t stage, const Action& a) {
    return arrivals[stage * static_cast<std::size_t>(s_.microbatches) +
                    static_cast<std::size_t>(a.microbatch)];
  }
  [[nodiscard]] static double cost_of(ActionKind kind, const StageCost& cost) {
    switch (kind) {
      case ActionKind::kForward:
        return cost.forward;
      case ActionKind::kBackward:
        return cost.backward;
      case ActionKind::kBackwardInput:
        return cost.backward - cost.weight;
      default:
        return cost.weight;
    }
  }

  /// Part of the action's cost that its pair hides.
  [[nodiscard]] double hidden(const Program& program, std::size_t i, const StageCost& cost) const {
    if (starts_pair(s_, program, i)) return cost.hidden_forward;
    return i > 0 && starts_pair(s_, program, i - 1) ? cost.hidden_backward : 0;
  }

  template <typename OnCompute>
  bool advance(std::size_t rank, const OnCompute& on_compute) {
    const std::size_t begin = next_[rank];
    while (next_[rank] < s_.programs[rank].size() && perform(rank, on_compute)) ++next_[rank];
    return next_[rank] > begin;
  }

  /// Performs the rank's next action; false if it must wait.
  template <typename OnCompute>
  bool perform(std::size_t rank, const OnCompute& on_compute) {
    const Program& program = s_.programs[rank];
    const Action& a = program[next_[rank]];
    const auto stage = static_cast<std::size_t>(s_.stage(static_cast<int>(rank), a));
    double& now = now_[rank];
    if (is_receive(a.kind)) {
      const double arrival = at(a.kind == ActionKind::kRecvActivation ? activation_ : gradient_, stage, a);
      if (arrival == kNever) return false;
      now = std::max(now, arrival);
    } else if (a.kind == ActionKind::kSendActivation) {
      at(activation_, stage + 1, a) = now + transfer_ * costs_[stage].message;
    } else if (a.kind == ActionKind::kSendGradient) {
      at(gradient_, stage - 1, a) = now + transfer_ * costs_[stage - 1].message;
    } else {
      const double begin = now;
      now += cost_of(a.kind, costs_[stage]) - hidden(program, next_[rank], costs_[stage]);
      on_compute(static_cast<int>(rank), a, begin, now);
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
