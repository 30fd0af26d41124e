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

/// A transfer by what crosses: the border behind `stage`, a micro-batch, a direction.
using Letter = std::tuple<bool, int, int>;

struct Transfer {
  Letter letter;
  int peer = 0;
};

std::optional<Transfer> transfer_of(const Schedule& schedule, int rank, const Action& a) {
  if (!is_transfer(a.act)) return std::nullopt;
  const int stage = schedule.stage(rank, a);
  const bool gradient = a.act == Do::kSendGradient || a.act == Do::kRecvGradient;
  const bool to_next = a.act == Do::kSendActivation || a.act == Do::kRecvGradient;
  const int border = to_next ? stage : stage - 1;
  const int other = to_next ? stage + 1 : stage - 1;
  return Transfer{{gradient, border, a.microbatch}, schedule.placement.place(other).rank};
}

/// Where each letter stands in a rank's program.
struct Positions {
  std::map<Letter, std::size_t> sent, received;
};

Positions positions_of(const Schedule& schedule, int rank) {
  Positions found;
  const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < program.size(); ++i)
    if (const auto t = transfer_of(schedule, rank, program[i]))
      (is_send(program[i].act) ? found.sent : found.received)[t->letter] = i;
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
    auto& waiting = open[t->peer];
    if (is_send(program[i].act)) {
      waiting.emplace_back(i, peer.received.at(t->letter));
      continue;
    }
    const std::size_t answered = peer.sent.at(t->letter);
    std::erase_if(waiting, [&](const auto& one) {
      const bool arrived = one.second < answered;
      if (arrived) release[i].push_back(one.first);
      return arrived;
    });
  }
  return release;
}

namespace {

/// What an action adds to the messages that are there, but for those that arrive. The input of a chunk behind
/// one without blocks is the tensor that both keep, until its backward pass.
std::int64_t made(const Schedule& schedule, int rank, const Action& a,
                  const std::vector<ChunkMessages>& chunks) {
  const int stage = schedule.stage(rank, a);
  const auto chunk_at = [&](int chunk) { return chunks[static_cast<std::size_t>(chunk)]; };
  const ChunkMessages chunk = chunk_at(a.chunk);
  const bool here_before = stage > 0 && !schedule.placement.crosses(stage - 1);
  const bool here_next = stage + 1 < schedule.stages() && !schedule.placement.crosses(stage);
  if (a.act == Do::kForward)  // the output of a chunk before, on this rank, is this one's input
    return (stage + 1 < schedule.stages() && !chunk.empty ? chunk.output : 0) -
           (here_before ? chunk.input : 0);
  if (!gives_input_gradient(a.act)) return 0;
  const bool shared = here_before && chunk_at(schedule.placement.place(stage - 1).chunk).empty;
  return (stage > 0 ? chunk.input : 0) + (shared ? chunk.input : 0) - (here_next ? chunk.output : 0);
}

}  // namespace

std::vector<std::int64_t> held_messages(const SoundSchedule& sound, int rank,
                                        const std::vector<ChunkMessages>& chunks) {
  const Schedule& schedule = sound.schedule;
  const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
  const auto& arrived = sound.messages[static_cast<std::size_t>(rank)].released;
  const auto chunk_of = [&](const Action& a) { return chunks[static_cast<std::size_t>(a.chunk)]; };
  const auto sent = [&](const Action& a) {
    const ChunkMessages chunk = chunk_of(a);
    return a.act == Do::kSendGradient ? chunk.input : chunk.empty ? 0 : chunk.output;
  };
  std::vector<std::int64_t> held{0};
  for (std::size_t i = 0; i < program.size(); ++i) {
    held.push_back(held.back() + made(schedule, rank, program[i], chunks));
    for (const std::size_t send : arrived[i]) held.back() -= sent(program[send]);
  }
  return held;
}

std::vector<std::vector<std::size_t>> receives_beside(const Program& program, bool forward_only) {
  const auto taken = [&](Do act) { return !forward_only || is_forward_part(act); };
  std::vector<std::vector<std::size_t>> beside(program.size());
  std::size_t computed = program.size();  // none yet
  bool postponed = false;                 // a gradient, and with it those behind it, which came later
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Action& a = program[i];
    if (!taken(a.act)) continue;
    if (!is_transfer(a.act)) {
      computed = i;
      postponed = false;
      continue;
    }
    if (!is_receive(a.act) || computed == program.size()) continue;
    const bool gradient = a.act == Do::kRecvGradient;
    postponed = postponed || (gradient && program[computed] == Action{Do::kForward, a.chunk, a.microbatch});
    if (!gradient || !postponed) beside[computed].push_back(i);
  }
  return beside;
}

namespace {

/// Forward passes of all ranks, of which each may have `room` sent messages on their way.
class Forwards {
 public:
  Forwards(const Schedule& schedule, std::size_t room)
      : schedule_(schedule), room_(room), next_(schedule.programs.size()), open_(schedule.programs.size()) {}

  /// Whether all come to their end.
  bool run() {
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
  /// False: it waits.
  bool step(int rank, const Action& a) {
    if (!is_forward_part(a.act) || !is_transfer(a.act)) return true;
    const int stage = schedule_.stage(rank, a);
    if (is_receive(a.act)) {
      const std::pair letter(stage - 1, a.microbatch);
      if (!sent_.contains(letter)) return false;
      received_.insert(letter);
      return true;
    }
    auto& open = open_[static_cast<std::size_t>(rank)];
    while (open.size() >= room_ && received_.contains(open.front())) open.pop_front();
    if (open.size() >= room_) return false;
    open.emplace_back(stage, a.microbatch);
    sent_.insert(open.back());
    return true;
  }

  const Schedule& schedule_;
  std::size_t room_;
  std::vector<std::size_t> next_;
  std::vector<std::deque<std::pair<int, int>>> open_;
  std::set<std::pair<int, int>> sent_, received_;  ///< border behind a stage, micro-batch
};

}  // namespace

std::size_t messages_of_evaluations(const Schedule& schedule) {
  std::size_t room = 2, longest = 0;
  for (const Program& program : schedule.programs) longest = std::max(longest, program.size());
  while (room < longest && !Forwards(schedule, room).run()) room *= 2;
  return room;
}

SoundSchedule sound(Schedule schedule) {
  SoundSchedule all{.schedule = std::move(schedule), .report = {}, .messages = {}};
  all.report = check(all.schedule);
  COL_CHECK(all.report.faults.empty(), "schedule must be sound; got {}; correct its function",
            all.report.faults[0]);
  for (int rank = 0; rank < all.schedule.ranks; ++rank)
    all.messages.push_back({releases(all.schedule, rank),
                            receives_beside(all.schedule.programs[static_cast<std::size_t>(rank)])});
  all.evaluation_messages = messages_of_evaluations(all.schedule);
  return all;
}

}  // namespace colonnade::schedule
