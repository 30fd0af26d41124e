// See releases.h.
#include "colonnade/schedule/releases.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "colonnade/base/error.h"

namespace colonnade::schedule {
namespace {

/// Message: whether it is a gradient, the stage before the crossed boundary, the micro-batch.
using Message = std::tuple<bool, int, int>;

struct Transfer {
  Message message;
  int peer = 0;
};

std::optional<Transfer> transfer_of(const Schedule& schedule, int rank, const Action& a) {
  if (!is_transfer(a.kind)) return std::nullopt;
  const int stage = schedule.stage(rank, a);
  const bool gradient = a.kind == ActionKind::kSendGradient || a.kind == ActionKind::kRecvGradient;
  const bool to_next = a.kind == ActionKind::kSendActivation || a.kind == ActionKind::kRecvGradient;
  const int boundary = to_next ? stage : stage - 1;
  const int other = to_next ? stage + 1 : stage - 1;
  return Transfer{{gradient, boundary, a.microbatch}, schedule.placement.location(other).rank};
}

/// Index of each message in a rank's program.
struct Positions {
  std::map<Message, std::size_t> sent, received;
};

Positions positions_of(const Schedule& schedule, int rank) {
  Positions found;
  const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < program.size(); ++i)
    if (const auto t = transfer_of(schedule, rank, program[i]))
      (is_send(program[i].kind) ? found.sent : found.received)[t->message] = i;
  return found;
}

}  // namespace

std::vector<std::vector<std::size_t>> releases(const Schedule& schedule, int rank) {
  const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
  std::vector<std::vector<std::size_t>> release(program.size());
  std::map<int, Positions> peers;
  std::map<int, std::vector<std::pair<std::size_t, std::size_t>>> open;  // by peer: (my send, their receive)
  for (std::size_t i = 0; i < program.size(); ++i) {
    const auto t = transfer_of(schedule, rank, program[i]);
    if (!t) continue;
    if (!peers.contains(t->peer)) peers[t->peer] = positions_of(schedule, t->peer);
    const Positions& peer = peers[t->peer];
    auto& unreleased = open[t->peer];
    if (is_send(program[i].kind)) {
      unreleased.emplace_back(i, peer.received.at(t->message));
      continue;
    }
    const std::size_t peer_send = peer.sent.at(t->message);
    std::erase_if(unreleased, [&](const auto& send) {
      const bool completed = send.second < peer_send;
      if (completed) release[i].push_back(send.first);
      return completed;
    });
  }
  return release;
}

namespace {

/// Change of the resident message bytes by an action, releases excepted. A chunk after one without blocks
/// shares its input tensor with it until its backward pass.
std::int64_t message_bytes_change(const Schedule& schedule, int rank, const Action& a,
                                  const std::vector<ChunkMessageSizes>& chunks) {
  const int stage = schedule.stage(rank, a);
  const auto chunk_at = [&](int chunk) { return chunks[static_cast<std::size_t>(chunk)]; };
  const ChunkMessageSizes chunk = chunk_at(a.chunk);
  const bool is_input_local = stage > 0 && !schedule.placement.crosses(stage - 1);
  const bool is_output_local = stage + 1 < schedule.stages() && !schedule.placement.crosses(stage);
  if (a.kind == ActionKind::kForward)
    return (stage + 1 < schedule.stages() && !chunk.empty ? chunk.output : 0) -
           (is_input_local ? chunk.input : 0);
  if (!computes_input_grad(a.kind)) return 0;
  const bool shared = is_input_local && chunk_at(schedule.placement.location(stage - 1).chunk).empty;
  return (stage > 0 ? chunk.input : 0) + (shared ? chunk.input : 0) - (is_output_local ? chunk.output : 0);
}

}  // namespace

std::vector<std::int64_t> resident_message_bytes(const CheckedSchedule& checked_schedule, int rank,
                                                 const std::vector<ChunkMessageSizes>& chunks) {
  const Schedule& schedule = checked_schedule.schedule;
  const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
  const auto& released = checked_schedule.messages[static_cast<std::size_t>(rank)].released;
  const auto chunk_of = [&](const Action& a) { return chunks[static_cast<std::size_t>(a.chunk)]; };
  const auto sent = [&](const Action& a) {
    const ChunkMessageSizes chunk = chunk_of(a);
    return a.kind == ActionKind::kSendGradient ? chunk.input : chunk.empty ? 0 : chunk.output;
  };
  std::vector<std::int64_t> held{0};
  for (std::size_t i = 0; i < program.size(); ++i) {
    held.push_back(held.back() + message_bytes_change(schedule, rank, program[i], chunks));
    for (const std::size_t send : released[i]) held.back() -= sent(program[send]);
  }
  return held;
}

std::vector<std::vector<std::size_t>> overlapped_receives(const Program& program, bool forward_only) {
  const auto is_run = [&](ActionKind kind) { return !forward_only || runs_in_forward_only(kind); };
  std::vector<std::vector<std::size_t>> overlapped(program.size());
  std::size_t computed = program.size();  // none yet
  bool postponed = false;                 // a gradient, and with it the gradients after it
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Action& a = program[i];
    if (!is_run(a.kind)) continue;
    if (!is_transfer(a.kind)) {
      computed = i;
      postponed = false;
      continue;
    }
    if (!is_receive(a.kind) || computed == program.size()) continue;
    const bool gradient = a.kind == ActionKind::kRecvGradient;
    const Action forward{ActionKind::kForward, a.chunk, a.microbatch};  // alone, or in a pair
    const bool runs_now = program[computed] == forward || (computed > 0 && program[computed - 1] == forward);
    postponed = postponed || (gradient && runs_now);
    if (!gradient || !postponed) overlapped[computed].push_back(i);
  }
  return overlapped;
}

namespace {

/// Simulates the forward passes of all ranks with at most `window` in-flight sends per rank.
class ForwardOnlyRun {
 public:
  ForwardOnlyRun(const Schedule& schedule, std::size_t window)
      : schedule_(schedule),
        window_(window),
        next_(schedule.programs.size()),
        open_(schedule.programs.size()) {}

  /// Whether every rank completes its program.
  bool completes() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.ranks; ++rank) moved = advance(rank) || moved;
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank)
      if (next_[rank] < schedule_.programs[rank].size()) return false;
    return true;
  }

 private:
  bool advance(int rank) {
    const Program& program = schedule_.programs[static_cast<std::size_t>(rank)];
    std::size_t& at = next_[static_cast<std::size_t>(rank)];
    const std::size_t before = at;
    while (at < program.size() && step(rank, program[at])) ++at;
    return at > before;
  }
  /// False if the action must wait.
  bool step(int rank, const Action& a) {
    if (!runs_in_forward_only(a.kind) || !is_transfer(a.kind)) return true;
    const int stage = schedule_.stage(rank, a);
    if (is_receive(a.kind)) {
      const std::pair message(stage - 1, a.microbatch);
      if (!sent_.contains(message)) return false;
      received_.insert(message);
      return true;
    }
    auto& open = open_[static_cast<std::size_t>(rank)];
    while (open.size() >= window_ && received_.contains(open.front())) open.pop_front();
    if (open.size() >= window_) return false;
    open.emplace_back(stage, a.microbatch);
    sent_.insert(open.back());
    return true;
  }

  const Schedule& schedule_;
  std::size_t window_;
  std::vector<std::size_t> next_;
  std::vector<std::deque<std::pair<int, int>>> open_;
  std::set<std::pair<int, int>> sent_, received_;  ///< stage before the boundary, micro-batch
};

}  // namespace

std::size_t evaluation_send_window(const Schedule& schedule) {
  std::size_t window = 2, longest = 0;
  for (const Program& program : schedule.programs) longest = std::max(longest, program.size());
  while (window < longest && !ForwardOnlyRun(schedule, window).completes()) window *= 2;
  return window;
}

CheckedSchedule checked(Schedule schedule) {
  CheckedSchedule all{.schedule = std::move(schedule), .report = {}, .messages = {}};
  all.report = check(all.schedule);
  COL_CHECK(all.report.faults.empty(), "schedule must be valid; got {}; fix the function that makes it",
            all.report.faults[0]);
  for (int rank = 0; rank < all.schedule.ranks; ++rank)
    all.messages.push_back({releases(all.schedule, rank),
                            overlapped_receives(all.schedule.programs[static_cast<std::size_t>(rank)])});
  all.evaluation_send_window = evaluation_send_window(all.schedule);
  return all;
}

}  // namespace colonnade::schedule
