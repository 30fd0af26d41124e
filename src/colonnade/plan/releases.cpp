// See releases.h.
#include "colonnade/plan/releases.h"

#include <map>
#include <optional>
#include <tuple>

namespace colonnade::plan {
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

std::vector<int> held_messages(const Schedule& schedule, int rank, const std::vector<bool>& empty) {
  const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
  const auto arrived = releases(schedule, rank);
  const auto is_kept = [&](const Action& a) { return empty[static_cast<std::size_t>(a.chunk)]; };
  std::vector<int> held{0};
  int now = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Action& a = program[i];
    const int stage = schedule.stage(rank, a);
    const bool here_before = stage > 0 && !schedule.placement.crosses(stage - 1);
    const bool here_next = stage + 1 < schedule.stages() && !schedule.placement.crosses(stage);
    if (a.act == Do::kForward) {
      if (stage + 1 < schedule.stages() && !is_kept(a)) ++now;
      if (here_before) --now;  // that chunk's output is this one's input
    }
    if (gives_input_gradient(a.act)) {
      if (stage > 0) ++now;
      if (here_next) --now;
    }
    for (const std::size_t send : arrived[i])
      if (program[send].act == Do::kSendGradient || !is_kept(program[send])) --now;
    held.push_back(now);
  }
  return held;
}

std::vector<std::vector<std::size_t>> receives_beside(const Program& program, bool forward_only) {
  const auto taken = [&](Do act) { return !forward_only || is_forward_part(act); };
  std::vector<std::vector<std::size_t>> beside(program.size());
  std::size_t computed = program.size();  // none yet
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Action& a = program[i];
    if (!taken(a.act)) continue;
    if (!is_transfer(a.act)) {
      computed = i;
      continue;
    }
    if (!is_receive(a.act) || computed == program.size()) continue;
    const Action& now = program[computed];
    const bool of_it = now.act == Do::kForward && now.chunk == a.chunk && now.microbatch == a.microbatch;
    if (a.act == Do::kRecvActivation || !of_it) beside[computed].push_back(i);
  }
  return beside;
}

}  // namespace colonnade::plan
