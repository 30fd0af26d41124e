// See diagnosis.h.
#include "colonnade/launch/diagnosis.h"

#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "colonnade/base/error.h"

namespace colonnade::launch {
namespace {

bool exited_with(const RankView& view, int code) {
  return view.exit && view.exit->signal == 0 && view.exit->code == code;
}

bool exited_normally(const RankView& view) {
  return exited_with(view, kExitDone) || exited_with(view, kExitStopped);
}

/// Whether it waits now, or waited when it gave up with exit code 4.
bool is_waiting(const RankView& view) {
  return view.page.waiting.has_value() && (!view.exit || exited_with(view, kExitRankLost));
}

const RankView* find(std::span<const RankView> ranks, int rank) {
  const auto found = std::ranges::find(ranks, rank, &RankView::rank);
  return found == ranks.end() ? nullptr : &*found;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string mark_text(const CollectiveMark& mark) {
  if (mark.peer >= 0) return fmt::format("'{}' (with rank {})", mark.what, mark.peer);
  if (mark.members.empty()) return fmt::format("'{}'", mark.what);
  return fmt::format("'{}' ({} of {}; number {})", mark.what, mark.axes, ranks_text(mark.members),
                     mark.sequence);
}

bool has_arrived(const RankView& view, const CollectiveMark& mark) {
  return std::ranges::any_of(view.page.groups, [&](const GroupProgress& group) {
    return group.axes == mark.axes && group.members == mark.members && group.started >= mark.sequence;
  });
}

/// Members monitored by other launchers: if all members on this machine have arrived, one of these is
/// missing.
std::vector<int> remote_members(const CollectiveMark& mark, std::span<const RankView> ranks) {
  std::vector<int> others = mark.members;
  std::erase_if(others, [&](int member) { return find(ranks, member) != nullptr; });
  return others;
}

/// "; rank 1 is missing there", as far as this machine can see; "" if no rank is missing.
std::string missing_text(const RankView& view, std::span<const RankView> ranks) {
  const std::vector<int> missing = missing_ranks(view, ranks);
  if (!missing.empty())
    return fmt::format("; {} {} missing there", ranks_text(missing), missing.size() == 1 ? "is" : "are");
  const std::vector<int> others = remote_members(*view.page.waiting, ranks);
  if (others.empty()) return "";
  return fmt::format("; all members on this machine have arrived; see the launcher of {}",
                     ranks_text(others));
}

/// Lines like "ranks 0, 2 wait in 'x' (dp of ranks 0, 1, 2; number 5); rank 1 is missing there".
std::vector<std::string> waiting_lines(std::span<const RankView> ranks) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> waiters;
  for (const RankView& view : ranks) {
    if (is_waiting(view))
      waiters[{mark_text(*view.page.waiting), missing_text(view, ranks)}].push_back(view.rank);
  }
  std::vector<std::string> lines;
  for (const auto& [operation, waiting] : waiters)
    lines.push_back(fmt::format("{} {} in {}{}", ranks_text(waiting), waiting.size() == 1 ? "waits" : "wait",
                                operation.first, operation.second));
  return lines;
}

/// Local ranks that others wait for and that do not wait themselves; if there are none, running ranks that do
/// not wait; if there are none, ranks that others wait for.
std::vector<int> blockers(std::span<const RankView> ranks) {
  std::set<int> awaited;
  for (const RankView& view : ranks) {
    for (const int rank : missing_ranks(view, ranks)) awaited.insert(rank);
  }
  std::vector<int> culprits;
  std::vector<int> not_waiting;
  std::vector<int> cycle;
  for (const RankView& view : ranks) {
    if (awaited.contains(view.rank)) (is_waiting(view) ? cycle : culprits).push_back(view.rank);
    if (!is_waiting(view) && !view.exit) not_waiting.push_back(view.rank);
  }
  return !culprits.empty() ? culprits : !not_waiting.empty() ? not_waiting : cycle;
}

/// The first rank that keeps `view` waiting and does not wait itself or, with `in_cycle`, waits for a local
/// rank.
const RankView* first_missing(const RankView& view, std::span<const RankView> ranks, bool in_cycle) {
  for (const int rank : missing_ranks(view, ranks)) {
    const RankView* const other = find(ranks, rank);
    if (other == nullptr || is_waiting(*other) != in_cycle) continue;
    const auto is_local = [&](int blocker) { return find(ranks, blocker) != nullptr; };
    if (!in_cycle || std::ranges::any_of(missing_ranks(*other, ranks), is_local)) return other;
  }
  return nullptr;
}

/// Report of one culprit.
std::string culprit_text(const RankView& view) {
  std::string line;
  if (view.exit)
    line = fmt::format("rank {} was lost: {}", view.rank, describe(*view.exit));
  else if (view.stopped_s > 0)
    line = fmt::format("rank {} was lost: stopped (SIGSTOP) for {:.1f} s", view.rank, view.stopped_s);
  else if (!view.page.opened)
    line = fmt::format("rank {} does not respond: it has not opened its progress page", view.rank);
  else
    line = fmt::format("rank {} does not respond: no heartbeat for {:.1f} s", view.rank, view.silent_s);
  if (view.page.opened) line += "; " + position_text(view);
  if (!view.page.note.empty()) line += fmt::format("; last note: {}", view.page.note);
  return line;
}

Diagnosis lost_ranks(std::span<const RankView> ranks, std::vector<int> culprits, int exit_code) {
  Diagnosis diagnosis{exit_code, std::move(culprits), {}};
  for (const int rank : diagnosis.culprits) diagnosis.lines.push_back(culprit_text(*find(ranks, rank)));
  for (std::string& line : waiting_lines(ranks)) diagnosis.lines.push_back(std::move(line));
  return diagnosis;
}

/// Ranks that rejected their settings or data. Their own message gives the reason; no rank is lost.
Diagnosis rejected_input(std::span<const RankView> ranks, std::vector<int> rejecting, int exit_code) {
  std::string line =
      fmt::format("{} ended with {}", ranks_text(rejecting), describe(*find(ranks, rejecting.front())->exit));
  const RankView& first = *find(ranks, rejecting.front());
  if (first.page.opened && first.page.step >= 0) line += "; " + position_text(first);
  return {exit_code, std::move(rejecting), {std::move(line)}};
}

/// Ranks that exited with the agreed code. Their own message gives the reason; no rank is lost.
std::optional<Diagnosis> agreed_exit(std::span<const RankView> ranks) {
  Diagnosis diagnosis;
  for (const RankView& view : ranks) {
    if (!view.exit || view.page.agreed_exit_code == 0 || !exited_with(view, view.page.agreed_exit_code))
      continue;
    diagnosis.exit_code = view.page.agreed_exit_code;
    diagnosis.culprits.push_back(view.rank);
  }
  if (diagnosis.culprits.empty()) return std::nullopt;
  diagnosis.lines = {fmt::format("{} ended with exit code {}, as all ranks had agreed; {}",
                                 ranks_text(diagnosis.culprits), diagnosis.exit_code,
                                 position_text(*find(ranks, diagnosis.culprits.front())))};
  return diagnosis;
}

/// The ranks for which `predicate` holds.
template <typename Predicate>
std::vector<int> ranks_where(std::span<const RankView> ranks, Predicate predicate) {
  std::vector<int> found;
  for (const RankView& view : ranks) {
    if (predicate(view)) found.push_back(view.rank);
  }
  return found;
}

}  // namespace

std::string position_text(const RankView& view) {
  const ProgressSnapshot& page = view.page;
  std::string text =
      page.step >= 0 ? fmt::format("step {}", page.step) : std::string("before the first step");
  if (!page.phase.empty()) text += fmt::format(", phase {}", page.phase);
  if (page.waiting)
    text += fmt::format(", waiting in {}", mark_text(*page.waiting));
  else if (page.last)
    text += fmt::format(", last operation {}", mark_text(*page.last));
  else
    text += ", before the first named operation";
  return text;
}

bool stopped_before_first_step(const RankView& view) {
  return view.page.step < 0 && exited_with(view, kExitStopped);
}

std::vector<RankView> with_early_stops(std::vector<RankView> ranks, bool asked) {
  if (!asked && std::ranges::none_of(ranks, stopped_before_first_step)) return ranks;
  for (RankView& view : ranks) {
    const bool early = view.page.step < 0 && view.exit;
    const bool by_signal = early && (view.exit->signal == SIGTERM || view.exit->signal == SIGINT);
    if (by_signal || (early && exited_with(view, kExitRankLost)))
      view.exit = ExitStatus{kExitStopped, 0, false};
  }
  return ranks;
}

std::vector<int> missing_ranks(const RankView& view, std::span<const RankView> ranks) {
  if (!is_waiting(view)) return {};
  const CollectiveMark& mark = *view.page.waiting;
  if (mark.peer >= 0) return {mark.peer};
  std::vector<int> missing;
  for (const int member : mark.members) {
    const RankView* const other = find(ranks, member);
    if (other == nullptr || member == view.rank) continue;
    const bool is_gone = other->exit && !exited_with(*other, kExitRankLost);
    if (is_gone || !has_arrived(*other, mark)) missing.push_back(member);
  }
  return missing;
}

std::optional<Straggler> find_straggler(std::span<const RankView> ranks, double after_s,
                                        std::int64_t now_ns) {
  const auto waited_s = [&](const RankView* view) {
    return static_cast<double>(now_ns - view->page.waiting->since_ns) * 1e-9;
  };
  std::vector<const RankView*> waiters;
  for (const RankView& view : ranks) {
    if (is_waiting(view) && !view.exit && waited_s(&view) >= after_s) waiters.push_back(&view);
  }
  std::ranges::stable_sort(waiters, std::ranges::greater(), waited_s);
  const RankView* waiter = nullptr;
  const RankView* missing = nullptr;
  for (const bool in_cycle : {false, true}) {
    for (std::size_t i = 0; i < waiters.size() && missing == nullptr; ++i) {
      waiter = waiters[i];
      missing = first_missing(*waiter, ranks, in_cycle);
    }
  }
  if (missing == nullptr) return std::nullopt;
  const std::string operation = mark_text(*waiter->page.waiting);
  const auto waiting = ranks_where(ranks, [&](const RankView& view) {
    return is_waiting(view) && mark_text(*view.page.waiting) == operation;
  });
  return Straggler{missing->rank,
                   fmt::format("rank {} is late: {} {} waited up to {:.1f} s for it in {}; it is at {}",
                               missing->rank, ranks_text(waiting), waiting.size() == 1 ? "has" : "have",
                               waited_s(waiter), operation, position_text(*missing))};
}

std::optional<Diagnosis> diagnose(std::span<const RankView> ranks, const Timeouts& timeouts,
                                  double waited_s) {
  if (auto agreed = agreed_exit(ranks)) return agreed;
  for (const int code : {kExitSettings, kExitData}) {
    const auto wrong = ranks_where(ranks, [&](const RankView& view) { return exited_with(view, code); });
    if (!wrong.empty()) return rejected_input(ranks, wrong, code);
  }
  const auto dead = ranks_where(ranks, [](const RankView& view) {
    return view.exit && !exited_normally(view) && !exited_with(view, kExitRankLost);
  });
  if (!dead.empty()) return lost_ranks(ranks, dead, kExitRankLost);
  const auto stopped =
      ranks_where(ranks, [&](const RankView& view) { return view.stopped_s >= timeouts.stopped_s; });
  if (!stopped.empty()) return lost_ranks(ranks, stopped, kExitRankLost);

  const auto lost_peer =
      ranks_where(ranks, [](const RankView& view) { return exited_with(view, kExitRankLost); });
  const auto silent = ranks_where(
      ranks, [&](const RankView& view) { return !view.exit && view.silent_s >= timeouts.silent_s; });
  const bool all_exited =
      std::ranges::all_of(ranks, [](const RankView& view) { return view.exit.has_value(); });
  if (silent.empty() && (lost_peer.empty() || (waited_s < timeouts.lost_peer_s && !all_exited)))
    return std::nullopt;
  std::vector<int> culprits = blockers(ranks);
  std::erase_if(culprits, [&](int rank) { return find(ranks, rank) == nullptr; });
  if (culprits.empty()) culprits = !lost_peer.empty() ? lost_peer : silent;
  return lost_ranks(ranks, culprits, kExitRankLost);
}

}  // namespace colonnade::launch
