// Proves a schedule sound by running it on counters instead of tensors.
#include <algorithm>
#include <array>
#include <deque>

#include "colonnade/base/error.h"
#include "colonnade/plan/program.h"

namespace colonnade::plan {
namespace {

constexpr int kNumActs = 6;
constexpr std::array<std::string_view, kNumActs> kNames = {
    "forward", "backward", "send activation", "receive activation", "send gradient", "receive gradient"};
constexpr std::size_t index(Do act) { return static_cast<std::size_t>(act); }

class Checker {
 public:
  explicit Checker(const Schedule& schedule)
      : s_(schedule),
        done_(static_cast<std::size_t>(s_.stages()) * static_cast<std::size_t>(s_.microbatches)),
        next_(s_.programs.size(), 0),
        live_(s_.programs.size(), 0),
        inbox_(s_.programs.size()) {
    report_.peak_live.assign(s_.programs.size(), 0);
  }

  ScheduleReport run() {
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

  [[nodiscard]] int stage(int rank, const Action& a) const { return a.chunk * s_.ranks + rank; }
  Done& done(int stage, int microbatch) {
    return done_[static_cast<std::size_t>(stage) * static_cast<std::size_t>(s_.microbatches) +
                 static_cast<std::size_t>(microbatch)];
  }
  [[nodiscard]] bool first(int stage) const { return stage == 0; }
  [[nodiscard]] bool last(int stage) const { return stage == s_.stages() - 1; }

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
    const int v = stage(rank, a);
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
        count_live(rank, +1);
        break;
      case Do::kBackward:
        if (!has(Do::kForward)) fault(rank, a, "its forward has not run");
        if (!has_gradient(v, a.microbatch)) fault(rank, a, "its gradient has not arrived");
        count_live(rank, -1);
        break;
      case Do::kSendActivation:
        if (!has(Do::kForward)) fault(rank, a, "its forward has not run");
        send(rank + 1, a.act, {v + 1, a.microbatch});
        break;
      case Do::kSendGradient:
        if (!has(Do::kBackward)) fault(rank, a, "its backward has not run");
        send(rank - 1, a.act, {v - 1, a.microbatch});
        break;
      case Do::kRecvActivation:
      case Do::kRecvGradient:
        take(rank, a);
        break;
    }
  }

  static bool is_receive(Do act) { return act == Do::kRecvActivation || act == Do::kRecvGradient; }

  /// Whether stage v performs `act` at all.
  [[nodiscard]] bool needed(int v, Do act) const {
    switch (act) {
      case Do::kForward:
      case Do::kBackward:
        return true;
      case Do::kRecvActivation:
      case Do::kSendGradient:
        return s_.ranks > 1 && !first(v);
      case Do::kSendActivation:
      case Do::kRecvGradient:
        return s_.ranks > 1 && !last(v);
    }
    return false;
  }

  bool has_input(int v, int m) {
    if (first(v)) return true;
    return s_.ranks > 1 ? done(v, m)[index(Do::kRecvActivation)] : done(v - 1, m)[index(Do::kForward)];
  }
  bool has_gradient(int v, int m) {
    if (last(v)) return true;
    return s_.ranks > 1 ? done(v, m)[index(Do::kRecvGradient)] : done(v + 1, m)[index(Do::kBackward)];
  }

  void count_live(int rank, int change) {
    const auto r = static_cast<std::size_t>(rank);
    live_[r] += change;
    report_.peak_live[r] = std::max(report_.peak_live[r], live_[r]);
  }

  std::deque<Value>& inbox(int rank, Do act) {
    const bool gradient = act == Do::kSendGradient || act == Do::kRecvGradient;
    return inbox_[static_cast<std::size_t>((rank + s_.ranks) % s_.ranks)][gradient ? 1 : 0];
  }
  void send(int to, Do act, Value value) {
    if (value.stage >= 0 && value.stage < s_.stages()) inbox(to, act).push_back(value);
  }
  bool arrived(int rank, const Action& a) {
    const auto& box = inbox(rank, a.act);
    return std::find(box.begin(), box.end(), Value{stage(rank, a), a.microbatch}) != box.end();
  }
  void take(int rank, const Action& a) {
    auto& box = inbox(rank, a.act);
    const auto it = std::find(box.begin(), box.end(), Value{stage(rank, a), a.microbatch});
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
      for (int m = 0; m < s_.microbatches; ++m) {
        for (int act = 0; act < kNumActs; ++act) {
          const Action action{static_cast<Do>(act), v / s_.ranks, m};
          if (needed(v, action.act) && !done(v, m)[index(action.act)])
            fault(v % s_.ranks, action, "never done");
        }
      }
    }
  }

  const Schedule& s_;
  ScheduleReport report_;
  std::vector<Done> done_;
  std::vector<std::size_t> next_;
  std::vector<int> live_;
  std::vector<std::array<std::deque<Value>, 2>> inbox_;  ///< per rank: activations, gradients
};

}  // namespace

ScheduleReport check(const Schedule& schedule) { return Checker(schedule).run(); }

}  // namespace colonnade::plan
