// See verdict.h.
#include "colonnade/launch/verdict.h"

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
  return view.ending && view.ending->signal == 0 && view.ending->code == code;
}

bool ended_well(const RankView& view) {
  return exited_with(view, kExitDone) || exited_with(view, kExitStopped);
}

/// It waits now, or waited when it gave up with exit code 4.
bool waits(const RankView& view) {
  return view.page.waiting.has_value() && (!view.ending || exited_with(view, kExitRankLost));
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

/// The members that another launcher watches: where all of this machine have arrived, one of them has not.
std::vector<int> elsewhere(const CollectiveMark& mark, std::span<const RankView> ranks) {
  std::vector<int> others = mark.members;
  std::erase_if(others, [&](int member) { return find(ranks, member) != nullptr; });
  return others;
}

/// "; rank 1 is missing there", as far as this machine can see; "" when nobody is.
std::string missing_text(const RankView& view, std::span<const RankView> ranks) {
  const std::vector<int> here = holding_up(view, ranks);
  if (!here.empty())
    return fmt::format("; {} {} missing there", ranks_text(here), here.size() == 1 ? "is" : "are");
  const std::vector<int> others = elsewhere(*view.page.waiting, ranks);
  if (others.empty()) return "";
  return fmt::format("; of this machine all are there: see the launcher of {}", ranks_text(others));
}

/// Lines like "ranks 0, 2 wait in 'x' (dp of ranks 0, 1, 2; number 5); rank 1 is missing there".
std::vector<std::string> waiting_lines(std::span<const RankView> ranks) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> waiters;
  for (const RankView& view : ranks) {
    if (waits(view)) waiters[{mark_text(*view.page.waiting), missing_text(view, ranks)}].push_back(view.rank);
  }
  std::vector<std::string> lines;
  for (const auto& [place, who] : waiters)
    lines.push_back(fmt::format("{} {} in {}{}", ranks_text(who), who.size() == 1 ? "waits" : "wait",
                                place.first, place.second));
  return lines;
}

/// The ranks of this machine that others wait for and that do not wait themselves; when there are
/// none, living ranks that do not wait; when there are none, ranks that others wait for.
std::vector<int> blockers(std::span<const RankView> ranks) {
  std::set<int> wanted;
  for (const RankView& view : ranks) {
    for (const int rank : holding_up(view, ranks)) wanted.insert(rank);
  }
  std::vector<int> guilty;
  std::vector<int> idle;
  std::vector<int> circle;
  for (const RankView& view : ranks) {
    if (wanted.contains(view.rank)) (waits(view) ? circle : guilty).push_back(view.rank);
    if (!waits(view) && !view.ending) idle.push_back(view.rank);
  }
  return !guilty.empty() ? guilty : !idle.empty() ? idle : circle;
}

/// Of the ranks that hold up `view`, the first that waits nowhere, or that waits for a rank of this machine.
const RankView* missing_there(const RankView& view, std::span<const RankView> ranks, bool in_circle) {
  for (const int rank : holding_up(view, ranks)) {
    const RankView* const other = find(ranks, rank);
    if (other == nullptr || waits(*other) != in_circle) continue;
    const auto here = [&](int holder) { return find(ranks, holder) != nullptr; };
    if (!in_circle || std::ranges::any_of(holding_up(*other, ranks), here)) return other;
  }
  return nullptr;
}

/// What is wrong with one culprit.
std::string accusation(const RankView& view) {
  std::string line;
  if (view.ending)
    line = fmt::format("rank {} was lost: {}", view.rank, describe(*view.ending));
  else if (view.stopped_s > 0)
    line = fmt::format("rank {} was lost: stopped (SIGSTOP) for {:.1f} s", view.rank, view.stopped_s);
  else if (!view.page.opened)
    line = fmt::format("rank {} does not answer: it has not opened its page of progress", view.rank);
  else
    line = fmt::format("rank {} does not answer: no sign of life for {:.1f} s", view.rank, view.silent_s);
  if (view.page.opened) line += "; " + where(view);
  if (!view.page.note.empty()) line += fmt::format("; last note: {}", view.page.note);
  return line;
}

Verdict accuse(std::span<const RankView> ranks, std::vector<int> culprits, int exit_code) {
  Verdict verdict{exit_code, std::move(culprits), {}};
  for (const int rank : verdict.culprits) verdict.lines.push_back(accusation(*find(ranks, rank)));
  for (std::string& line : waiting_lines(ranks)) verdict.lines.push_back(std::move(line));
  return verdict;
}

/// Ranks that ended by themselves because settings or data are wrong: their own message says what, and nobody
/// is lost.
Verdict refusal(std::span<const RankView> ranks, std::vector<int> wrong, int exit_code) {
  std::string line =
      fmt::format("{} ended with {}", ranks_text(wrong), describe(*find(ranks, wrong.front())->ending));
  const RankView& first = *find(ranks, wrong.front());
  if (first.page.opened && first.page.step >= 0) line += "; " + where(first);
  return {exit_code, std::move(wrong), {std::move(line)}};
}

/// The ranks that ended as all had agreed: the reason is theirs to say, and nobody is lost.
std::optional<Verdict> agreement(std::span<const RankView> ranks) {
  Verdict verdict;
  for (const RankView& view : ranks) {
    if (!view.ending || view.page.agreed_end == 0 || !exited_with(view, view.page.agreed_end)) continue;
    verdict.exit_code = view.page.agreed_end;
    verdict.culprits.push_back(view.rank);
  }
  if (verdict.culprits.empty()) return std::nullopt;
  verdict.lines = {fmt::format("{} ended with exit code {}, as all ranks had agreed; {}",
                               ranks_text(verdict.culprits), verdict.exit_code,
                               where(*find(ranks, verdict.culprits.front())))};
  return verdict;
}

/// The ranks for which `bad` holds.
template <typename Predicate>
std::vector<int> all(std::span<const RankView> ranks, Predicate bad) {
  std::vector<int> found;
  for (const RankView& view : ranks) {
    if (bad(view)) found.push_back(view.rank);
  }
  return found;
}

}  // namespace

std::string where(const RankView& view) {
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

bool stopped_early(const RankView& view) { return view.page.step < 0 && exited_with(view, kExitStopped); }

std::vector<RankView> with_early_stops(std::vector<RankView> ranks, bool asked) {
  if (!asked && std::ranges::none_of(ranks, stopped_early)) return ranks;
  for (RankView& view : ranks) {
    const bool early = view.page.step < 0 && view.ending;
    const bool by_signal = early && (view.ending->signal == SIGTERM || view.ending->signal == SIGINT);
    if (by_signal || (early && exited_with(view, kExitRankLost)))
      view.ending = Ending{kExitStopped, 0, false};
  }
  return ranks;
}

std::vector<int> holding_up(const RankView& view, std::span<const RankView> ranks) {
  if (!waits(view)) return {};
  const CollectiveMark& mark = *view.page.waiting;
  if (mark.peer >= 0) return {mark.peer};
  std::vector<int> missing;
  for (const int member : mark.members) {
    const RankView* const other = find(ranks, member);
    if (other == nullptr || member == view.rank) continue;
    const bool gone = other->ending && !exited_with(*other, kExitRankLost);
    if (gone || !has_arrived(*other, mark)) missing.push_back(member);
  }
  return missing;
}

std::optional<Late> find_late(std::span<const RankView> ranks, double after_s, std::int64_t now_ns) {
  const auto waited_s = [&](const RankView* view) {
    return static_cast<double>(now_ns - view->page.waiting->since_ns) * 1e-9;
  };
  std::vector<const RankView*> waiters;
  for (const RankView& view : ranks) {
    if (waits(view) && !view.ending && waited_s(&view) >= after_s) waiters.push_back(&view);
  }
  std::ranges::stable_sort(waiters, std::ranges::greater(), waited_s);
  const RankView* waiter = nullptr;
  const RankView* missing = nullptr;
  for (const bool in_circle : {false, true}) {
    for (std::size_t i = 0; i < waiters.size() && missing == nullptr; ++i) {
      waiter = waiters[i];
      missing = missing_there(*waiter, ranks, in_circle);
    }
  }
  if (missing == nullptr) return std::nullopt;
  const std::string place = mark_text(*waiter->page.waiting);
  const auto who =
      all(ranks, [&](const RankView& view) { return waits(view) && mark_text(*view.page.waiting) == place; });
  return Late{missing->rank,
              fmt::format("rank {} is late: {} {} waited up to {:.1f} s for it in {}; it is at {}",
                          missing->rank, ranks_text(who), who.size() == 1 ? "has" : "have", waited_s(waiter),
                          place, where(*missing))};
}

std::optional<Verdict> judge(std::span<const RankView> ranks, const Patience& patience, double waited_s) {
  if (auto agreed = agreement(ranks)) return agreed;
  for (const int code : {kExitSettings, kExitData}) {
    const auto wrong = all(ranks, [&](const RankView& view) { return exited_with(view, code); });
    if (!wrong.empty()) return refusal(ranks, wrong, code);
  }
  const auto dead = all(ranks, [](const RankView& view) {
    return view.ending && !ended_well(view) && !exited_with(view, kExitRankLost);
  });
  if (!dead.empty()) return accuse(ranks, dead, kExitRankLost);
  const auto frozen = all(ranks, [&](const RankView& view) { return view.stopped_s >= patience.stopped_s; });
  if (!frozen.empty()) return accuse(ranks, frozen, kExitRankLost);

  const auto deserted = all(ranks, [](const RankView& view) { return exited_with(view, kExitRankLost); });
  const auto silent =
      all(ranks, [&](const RankView& view) { return !view.ending && view.silent_s >= patience.silent_s; });
  const bool all_ended =
      std::ranges::all_of(ranks, [](const RankView& view) { return view.ending.has_value(); });
  if (silent.empty() && (deserted.empty() || (waited_s < patience.peer_s && !all_ended))) return std::nullopt;
  std::vector<int> guilty = blockers(ranks);
  std::erase_if(guilty, [&](int rank) { return find(ranks, rank) == nullptr; });
  if (guilty.empty()) guilty = !deserted.empty() ? deserted : silent;
  return accuse(ranks, guilty, kExitRankLost);
}

}  // namespace colonnade::launch
