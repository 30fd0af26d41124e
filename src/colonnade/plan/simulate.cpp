// Runs a schedule on a clock.
#include <algorithm>
#include <limits>

#include "colonnade/base/error.h"
#include "colonnade/plan/program.h"

namespace colonnade::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Clock {
 public:
  Clock(const Schedule& schedule, const ActionCosts& costs)
      : s_(schedule),
        costs_(costs),
        activation_(values(), kNever),
        gradient_(values(), kNever),
        next_(s_.programs.size(), 0),
        now_(s_.programs.size(), 0),
        spans_(s_.programs.size()) {}

  Timeline run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int rank = 0; rank < s_.ranks; ++rank) progress = advance(rank) || progress;
    }
    Timeline timeline;
    double busy = 0;
    for (std::size_t r = 0; r < spans_.size(); ++r) {
      COL_CHECK(next_[r] == s_.programs[r].size(),
                "simulate: every rank must reach its end; rank {} stopped at action "
                "{} of {}; run check() on the schedule",
                r, next_[r], s_.programs[r].size());
      if (!spans_[r].empty())
        timeline.longest_rank =
            std::max(timeline.longest_rank, spans_[r].back().end - spans_[r].front().begin);
      for (const auto& span : spans_[r]) {
        timeline.makespan = std::max(timeline.makespan, span.end);
        busy += span.end - span.begin;
        timeline.spans.push_back(span);
      }
    }
    if (timeline.makespan > 0) timeline.bubble_fraction = 1 - busy / (timeline.makespan * s_.ranks);
    return timeline;
  }

 private:
  [[nodiscard]] std::size_t values() const {
    return static_cast<std::size_t>(s_.stages()) * static_cast<std::size_t>(s_.microbatches);
  }
  /// Arrival time of the input (or gradient) of a stage.
  double& at(std::vector<double>& arrivals, int stage, const Action& a) {
    return arrivals[static_cast<std::size_t>(stage) * static_cast<std::size_t>(s_.microbatches) +
                    static_cast<std::size_t>(a.microbatch)];
  }

  bool advance(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::size_t begin = next_[r];
    while (next_[r] < s_.programs[r].size() && perform(rank, s_.programs[r][next_[r]])) ++next_[r];
    return next_[r] > begin;
  }

  bool perform(int rank, const Action& a) {
    const int stage = s_.stage(rank, a);
    double& now = now_[static_cast<std::size_t>(rank)];
    switch (a.act) {
      case Do::kForward:
        work(rank, a, costs_.forward);
        break;
      case Do::kBackward:
        work(rank, a, costs_.backward);
        break;
      case Do::kBackwardInput:
        work(rank, a, costs_.backward - costs_.weight);
        break;
      case Do::kBackwardWeight:
        work(rank, a, costs_.weight);
        break;
      case Do::kSendActivation:
        at(activation_, stage + 1, a) = now + costs_.transfer;
        break;
      case Do::kSendGradient:
        at(gradient_, stage - 1, a) = now + costs_.transfer;
        break;
      case Do::kRecvActivation:
      case Do::kRecvGradient: {
        const double arrival = at(a.act == Do::kRecvActivation ? activation_ : gradient_, stage, a);
        if (arrival == kNever) return false;
        now = std::max(now, arrival);
        break;
      }
    }
    return true;
  }

  void work(int rank, const Action& a, double cost) {
    double& now = now_[static_cast<std::size_t>(rank)];
    spans_[static_cast<std::size_t>(rank)].push_back({rank, a, now, now + cost});
    now += cost;
  }

  const Schedule& s_;
  ActionCosts costs_;
  std::vector<double> activation_;
  std::vector<double> gradient_;
  std::vector<std::size_t> next_;
  std::vector<double> now_;
  std::vector<std::vector<Timeline::Span>> spans_;
};

}  // namespace

Timeline simulate(const Schedule& schedule, const ActionCosts& costs) { return Clock(schedule, costs).run(); }

}  // namespace colonnade::plan
