// Checks a schedule by simulating its messages and actions without tensors.
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <tuple>

#include "colonnade/base/error.h"
#include "colonnade/schedule/program.h"

namespace colonnade::schedule {
namespace {

constexpr int kNumKinds = 8;
constexpr std::array<std::string_view, kNumKinds> kNames = {
    "forward",         "backward",           "input gradient", "weight gradient",
    "send activation", "receive activation", "send gradient",  "receive gradient"};
constexpr std::size_t index(ActionKind kind) { return static_cast<std::size_t>(kind); }

class Checker {
 public:
  explicit Checker(const Schedule& schedule)
      : s_(schedule),
        done_(static_cast<std::size_t>(s_.stages()) * static_cast<std::size_t>(s_.microbatches)),
        next_(s_.programs.size(), 0),
        live_(s_.programs.size(), 0),
        pending_wgrads_(s_.programs.size(), 0) {
    report_.peak_in_flight.assign(s_.programs.size(), 0);
    report_.peak_pending_wgrads.assign(s_.programs.size(), 0);
  }

  ScheduleReport run() {
    if (s_.placement.ranks() != s_.ranks || s_.placement.chunks() != s_.chunks) {
      report_.faults.push_back(
          fmt::format("schedule must have a placement of its sizes; got {} x {} for {} ranks with {} chunks",
                      s_.placement.ranks(), s_.placement.chunks(), s_.ranks, s_.chunks));
      return report_;
    }
    if (static_cast<int>(s_.programs.size()) != s_.ranks) {
      report_.faults.push_back(
          fmt::format("schedule must have one program per rank; got {} programs for {} ranks",
                      s_.programs.size(), s_.ranks));
      return report_;
    }
    for (bool progress = true; progress;) {
      progress = false;
      for (int rank = 0; rank < s_.ranks; ++rank) progress = advance(rank) || progress;
    }
    report_deadlocks();
    report_missing();
    return std::move(report_);
  }

 private:
  using Done = std::array<bool, kNumKinds>;
  struct Message {
    int stage;
    int microbatch;
    friend bool operator==(const Message&, const Message&) = default;
  };

  Done& done(int stage, int microbatch) {
    return done_[static_cast<std::size_t>(stage) * static_cast<std::size_t>(s_.microbatches) +
                 static_cast<std::size_t>(microbatch)];
  }
  void fault(int rank, const Action& a, std::string_view why) {
    report_.faults.push_back(fmt::format("rank {}: {} of chunk {}, micro-batch {}: {}", rank,
                                         kNames[index(a.kind)], a.chunk, a.microbatch, why));
  }

  /// Runs the rank's actions until one must wait. True if at least one ran.
  bool advance(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const Program& program = s_.programs[r];
    const std::size_t begin = next_[r];
    while (next_[r] < program.size() && perform(rank, program[next_[r]])) ++next_[r];
    return next_[r] > begin;
  }

  /// False if the action must wait.
  bool perform(int rank, const Action& a) {
    if (a.chunk < 0 || a.chunk >= s_.chunks || a.microbatch < 0 || a.microbatch >= s_.microbatches ||
        index(a.kind) >= kNumKinds) {
      report_.faults.push_back(
          fmt::format("rank {}: action {} of chunk {}, micro-batch {} is outside {} chunks and {} "
                      "micro-batches",
                      rank, index(a.kind), a.chunk, a.microbatch, s_.chunks, s_.microbatches));
      return true;
    }
    const int v = s_.stage(rank, a);
    if (exists(v, a.kind) && is_receive(a.kind) && !arrived(rank, a)) return false;
    Done& mine = done(v, a.microbatch);
    if (mine[index(a.kind)]) fault(rank, a, "done twice");
    if (!exists(v, a.kind)) fault(rank, a, "no peer stage");
    mine[index(a.kind)] = true;
    apply(rank, v, a, mine);
    return true;
  }

  void apply(int rank, int v, const Action& a, const Done& mine) {
    const auto has = [&](ActionKind kind) { return mine[index(kind)]; };
    switch (a.kind) {
      case ActionKind::kForward:
        if (!has_input(v, a.microbatch)) fault(rank, a, "its input has not arrived");
        count(live_, report_.peak_in_flight, rank, +1);
        break;
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        if (!has(ActionKind::kForward)) fault(rank, a, "its forward has not run");
        if (!has_gradient(v, a.microbatch)) fault(rank, a, "its gradient has not arrived");
        if (has(ActionKind::kBackward) && has(ActionKind::kBackwardInput))
          fault(rank, a, "done as full and as split backward");
        if (a.kind == ActionKind::kBackwardInput)
          count(pending_wgrads_, report_.peak_pending_wgrads, rank, +1);
        break;
      case ActionKind::kBackwardWeight:
        if (!has(ActionKind::kBackwardInput)) fault(rank, a, "its input gradient has not been computed");
        count(pending_wgrads_, report_.peak_pending_wgrads, rank, -1);
        break;
      case ActionKind::kSendActivation:
        if (!has(ActionKind::kForward)) fault(rank, a, "its forward has not run");
        send(rank, a.kind, {v + 1, a.microbatch});
        break;
      case ActionKind::kSendGradient:
        if (!has(ActionKind::kBackward) && !has(ActionKind::kBackwardInput))
          fault(rank, a, "its backward has not run");
        send(rank, a.kind, {v - 1, a.microbatch});
        break;
      case ActionKind::kRecvActivation:
      case ActionKind::kRecvGradient:
        receive(rank, a);
        break;
    }
    if (completes_backward(a.kind)) count(live_, report_.peak_in_flight, rank, -1);
  }

  /// Whether stage v has an action of this kind.
  [[nodiscard]] bool exists(int v, ActionKind kind) const {
    switch (kind) {
      case ActionKind::kForward:
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
      case ActionKind::kBackwardWeight:
        return true;
      case ActionKind::kRecvActivation:
      case ActionKind::kSendGradient:
        return s_.placement.crosses(v - 1);
      case ActionKind::kSendActivation:
      case ActionKind::kRecvGradient:
        return s_.placement.crosses(v);
    }
    return false;
  }

  /// Between two stages on one rank, the tensor is available once the other stage's action is done.
  bool has_input(int v, int m) {
    if (v == 0) return true;
    return s_.placement.crosses(v - 1) ? done(v, m)[index(ActionKind::kRecvActivation)]
                                       : done(v - 1, m)[index(ActionKind::kForward)];
  }
  bool has_gradient(int v, int m) {
    if (v == s_.stages() - 1) return true;
    if (s_.placement.crosses(v)) return done(v, m)[index(ActionKind::kRecvGradient)];
    const Done& next = done(v + 1, m);
    return next[index(ActionKind::kBackward)] || next[index(ActionKind::kBackwardInput)];
  }

  static void count(std::vector<int>& now, std::vector<int>& peak, int rank, int change) {
    const auto r = static_cast<std::size_t>(rank);
    now[r] += change;
    peak[r] = std::max(peak[r], now[r]);
  }

  /// In-flight messages between two ranks, activations and gradients separately.
  std::deque<Message>& channel(int from, int to, ActionKind kind) {
    return channels_[{from, to, kind == ActionKind::kSendGradient || kind == ActionKind::kRecvGradient}];
  }
  void send(int from, ActionKind kind, Message message) {
    if (message.stage < 0 || message.stage >= s_.stages()) return;
    channel(from, s_.placement.location(message.stage).rank, kind).push_back(message);
  }
  std::deque<Message>& channel_of(int rank, const Action& a) {
    const int v = s_.stage(rank, a);
    const int other = std::clamp(a.kind == ActionKind::kRecvActivation ? v - 1 : v + 1, 0, s_.stages() - 1);
    return channel(s_.placement.location(other).rank, rank, a.kind);
  }
  bool arrived(int rank, const Action& a) {
    const auto& in_flight = channel_of(rank, a);
    return std::find(in_flight.begin(), in_flight.end(), Message{s_.stage(rank, a), a.microbatch}) !=
           in_flight.end();
  }
  void receive(int rank, const Action& a) {
    auto& in_flight = channel_of(rank, a);
    const auto it = std::find(in_flight.begin(), in_flight.end(), Message{s_.stage(rank, a), a.microbatch});
    if (it == in_flight.end()) return;  // reported as having no peer stage
    if (it != in_flight.begin()) fault(rank, a, "received out of order");
    in_flight.erase(it);
  }

  void report_deadlocks() {
    for (int rank = 0; rank < s_.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      if (next_[r] < s_.programs[r].size()) fault(rank, s_.programs[r][next_[r]], "deadlocks");
    }
  }

  void report_missing() {
    for (int v = 0; v < s_.stages(); ++v) {
      const StageLocation location = s_.placement.location(v);
      for (int m = 0; m < s_.microbatches; ++m) {
        const Done& mine = done(v, m);
        const bool is_split =
            mine[index(ActionKind::kBackwardInput)] || mine[index(ActionKind::kBackwardWeight)];
        for (int kind = 0; kind < kNumKinds; ++kind) {
          const Action action{static_cast<ActionKind>(kind), location.chunk, m};
          const bool full = action.kind == ActionKind::kBackward;
          const bool split =
              action.kind == ActionKind::kBackwardInput || action.kind == ActionKind::kBackwardWeight;
          if ((full && is_split) || (split && !is_split)) continue;
          if (exists(v, action.kind) && !mine[index(action.kind)]) fault(location.rank, action, "never done");
        }
      }
    }
  }

  const Schedule& s_;
  ScheduleReport report_;
  std::vector<Done> done_;
  std::vector<std::size_t> next_;
  std::vector<int> live_, pending_wgrads_;
  std::map<std::tuple<int, int, bool>, std::deque<Message>> channels_;  ///< by sender, receiver, is gradient
};

}  // namespace

ScheduleReport check(const Schedule& schedule) { return Checker(schedule).run(); }

}  // namespace colonnade::schedule
