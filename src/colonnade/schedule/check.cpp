// Proves a schedule sound by running it on counters instead of tensors.
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <tuple>

#include "colonnade/base/error.h"
#include "colonnade/schedule/program.h"

namespace colonnade::schedule {
namespace {

constexpr int kNumActs = 8;
constexpr std::array<std::string_view, kNumActs> kNames = {
    "forward",         "backward",           "input gradient", "weight gradient",
    "send activation", "receive activation", "send gradient",  "receive gradient"};
constexpr std::size_t index(Do act) { return static_cast<std::size_t>(act); }

class Checker {
 public:
  explicit Checker(const Schedule& schedule)
      : s_(schedule),
        done_(static_cast<std::size_t>(s_.stages()) * static_cast<std::size_t>(s_.microbatches)),
        next_(s_.programs.size(), 0),
        live_(s_.programs.size(), 0),
        waiting_(s_.programs.size(), 0) {
    report_.peak_live.assign(s_.programs.size(), 0);
    report_.peak_waiting.assign(s_.programs.size(), 0);
  }

  ScheduleReport run() {
    if (s_.placement.ranks() != s_.ranks || s_.placement.chunks() != s_.chunks) {
      report_.faults.push_back(
          fmt::format("schedule: the placement must be of its sizes; got {} x {} for {} ranks with {} chunks",
                      s_.placement.ranks(), s_.placement.chunks(), s_.ranks, s_.chunks));
      return report_;
    }
    if (static_cast<int>(s_.programs.size()) != s_.ranks) {
      report_.faults.push_back(fmt::format("schedule: one program per rank; got {} programs for {} ranks",
                                           s_.programs.size(), s_.ranks));
      return report_;
    }
    for (bool progress = true; progress;) {
      progress = false;
      for (int rank = 0; rank < s_.ranks; ++rank) progress = advance(rank) || progress;
    }
    report_stuck();
    report_missing();
    return std::move(report_);
  }

 private:
  using Done = std::array<bool, kNumActs>;
  struct Value {
    int stage;
    int microbatch;
    friend bool operator==(const Value&, const Value&) = default;
  };

  Done& done(int stage, int microbatch) {
    return done_[static_cast<std::size_t>(stage) * static_cast<std::size_t>(s_.microbatches) +
                 static_cast<std::size_t>(microbatch)];
  }
  void fault(int rank, const Action& a, std::string_view why) {
    report_.faults.push_back(fmt::format("rank {}: {} of chunk {}, micro-batch {}: {}", rank,
                                         kNames[index(a.act)], a.chunk, a.microbatch, why));
  }

  /// Runs the rank's actions until one must wait. True when at least one ran.
  bool advance(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const Program& program = s_.programs[r];
    const std::size_t begin = next_[r];
    while (next_[r] < program.size() && perform(rank, program[next_[r]])) ++next_[r];
    return next_[r] > begin;
  }

  /// False when the action must wait.
  bool perform(int rank, const Action& a) {
    if (a.chunk < 0 || a.chunk >= s_.chunks || a.microbatch < 0 || a.microbatch >= s_.microbatches ||
        index(a.act) >= kNumActs) {
      report_.faults.push_back(
          fmt::format("rank {}: action {} of chunk {}, micro-batch {} is outside {} chunks and {} "
                      "micro-batches",
                      rank, index(a.act), a.chunk, a.microbatch, s_.chunks, s_.microbatches));
      return true;
    }
    const int v = s_.stage(rank, a);
    if (needed(v, a.act) && is_receive(a.act) && !arrived(rank, a)) return false;
    Done& mine = done(v, a.microbatch);
    if (mine[index(a.act)]) fault(rank, a, "done twice");
    if (!needed(v, a.act)) fault(rank, a, "no stage is on the other side");
    mine[index(a.act)] = true;
    act(rank, v, a, mine);
    return true;
  }

  void act(int rank, int v, const Action& a, const Done& mine) {
    const auto has = [&](Do before) { return mine[index(before)]; };
    switch (a.act) {
      case Do::kForward:
        if (!has_input(v, a.microbatch)) fault(rank, a, "its input has not arrived");
        count(live_, report_.peak_live, rank, +1);
        break;
      case Do::kBackward:
      case Do::kBackwardInput:
        if (!has(Do::kForward)) fault(rank, a, "its forward has not run");
        if (!has_gradient(v, a.microbatch)) fault(rank, a, "its gradient has not arrived");
        if (has(Do::kBackward) && has(Do::kBackwardInput)) fault(rank, a, "done whole and in parts");
        if (a.act == Do::kBackwardInput) count(waiting_, report_.peak_waiting, rank, +1);
        break;
      case Do::kBackwardWeight:
        if (!has(Do::kBackwardInput)) fault(rank, a, "its input gradient has not been computed");
        count(waiting_, report_.peak_waiting, rank, -1);
        break;
      case Do::kSendActivation:
        if (!has(Do::kForward)) fault(rank, a, "its forward has not run");
        send(rank, a.act, {v + 1, a.microbatch});
        break;
      case Do::kSendGradient:
        if (!has(Do::kBackward) && !has(Do::kBackwardInput)) fault(rank, a, "its backward has not run");
        send(rank, a.act, {v - 1, a.microbatch});
        break;
      case Do::kRecvActivation:
      case Do::kRecvGradient:
        take(rank, a);
        break;
    }
    if (ends_backward(a.act)) count(live_, report_.peak_live, rank, -1);
  }

  /// Whether stage v may perform `act` at all.
  [[nodiscard]] bool needed(int v, Do act) const {
    switch (act) {
      case Do::kForward:
      case Do::kBackward:
      case Do::kBackwardInput:
      case Do::kBackwardWeight:
        return true;
      case Do::kRecvActivation:
      case Do::kSendGradient:
        return s_.placement.crosses(v - 1);
      case Do::kSendActivation:
      case Do::kRecvGradient:
        return s_.placement.crosses(v);
    }
    return false;
  }

  /// Of two stages on one rank, the value is there when the other's action is done.
  bool has_input(int v, int m) {
    if (v == 0) return true;
    return s_.placement.crosses(v - 1) ? done(v, m)[index(Do::kRecvActivation)]
                                       : done(v - 1, m)[index(Do::kForward)];
  }
  bool has_gradient(int v, int m) {
    if (v == s_.stages() - 1) return true;
    if (s_.placement.crosses(v)) return done(v, m)[index(Do::kRecvGradient)];
    const Done& next = done(v + 1, m);
    return next[index(Do::kBackward)] || next[index(Do::kBackwardInput)];
  }

  static void count(std::vector<int>& now, std::vector<int>& peak, int rank, int change) {
    const auto r = static_cast<std::size_t>(rank);
    now[r] += change;
    peak[r] = std::max(peak[r], now[r]);
  }

  /// What goes from one rank to another, activations and gradients apart.
  std::deque<Value>& lane(int from, int to, Do act) {
    return lanes_[{from, to, act == Do::kSendGradient || act == Do::kRecvGradient}];
  }
  void send(int from, Do act, Value value) {
    if (value.stage < 0 || value.stage >= s_.stages()) return;
    lane(from, s_.placement.place(value.stage).rank, act).push_back(value);
  }
  std::deque<Value>& lane_of(int rank, const Action& a) {
    const int v = s_.stage(rank, a);
    const int other = std::clamp(a.act == Do::kRecvActivation ? v - 1 : v + 1, 0, s_.stages() - 1);
    return lane(s_.placement.place(other).rank, rank, a.act);
  }
  bool arrived(int rank, const Action& a) {
    const auto& box = lane_of(rank, a);
    return std::find(box.begin(), box.end(), Value{s_.stage(rank, a), a.microbatch}) != box.end();
  }
  void take(int rank, const Action& a) {
    auto& box = lane_of(rank, a);
    const auto it = std::find(box.begin(), box.end(), Value{s_.stage(rank, a), a.microbatch});
    if (it == box.end()) return;  // reported as having no other side
    if (it != box.begin()) fault(rank, a, "received in another order than sent");
    box.erase(it);
  }

  void report_stuck() {
    for (int rank = 0; rank < s_.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      if (next_[r] < s_.programs[r].size()) fault(rank, s_.programs[r][next_[r]], "waits forever");
    }
  }

  void report_missing() {
    for (int v = 0; v < s_.stages(); ++v) {
      const Place place = s_.placement.place(v);
      for (int m = 0; m < s_.microbatches; ++m) {
        const Done& mine = done(v, m);
        const bool in_parts = mine[index(Do::kBackwardInput)] || mine[index(Do::kBackwardWeight)];
        for (int act = 0; act < kNumActs; ++act) {
          const Action action{static_cast<Do>(act), place.chunk, m};
          const bool whole = action.act == Do::kBackward;
          const bool part = action.act == Do::kBackwardInput || action.act == Do::kBackwardWeight;
          if ((whole && in_parts) || (part && !in_parts)) continue;
          if (needed(v, action.act) && !mine[index(action.act)]) fault(place.rank, action, "never done");
        }
      }
    }
  }

  const Schedule& s_;
  ScheduleReport report_;
  std::vector<Done> done_;
  std::vector<std::size_t> next_;
  std::vector<int> live_, waiting_;
  std::map<std::tuple<int, int, bool>, std::deque<Value>> lanes_;  ///< by sender, receiver, gradient or not
};

}  // namespace

ScheduleReport check(const Schedule& schedule) { return Checker(schedule).run(); }

}  // namespace colonnade::schedule
