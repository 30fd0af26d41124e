// See call_log.h.
#include "colonnade/comm/call_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <tuple>

#include "colonnade/comm/backend.h"

namespace colonnade::comm {
namespace {

bool is_message(const LoggedCall& call) { return call.operation == "send" || call.operation == "recv"; }

std::string describe(const LoggedCall& call) {
  return fmt::format("{} \"{}\" of {} [{}]", call.operation, call.what, c10::toString(call.dtype),
                     fmt::join(call.shape, ", "));
}

bool same_size(const LoggedCall& a, const LoggedCall& b) {
  return a.dtype == b.dtype && (a.dynamic_size || a.shape == b.shape);
}

/// Whether two members made the same collective call.
bool same_call(const LoggedCall& a, const LoggedCall& b) {
  if (a.operation != b.operation || a.what != b.what || a.peer != b.peer) return false;
  // Row counts of an all_to_all differ by rank and are compared pairwise.
  if (a.operation == "all_to_all")
    return a.dtype == b.dtype &&
           std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1, b.shape.end());
  return same_size(a, b);
}

using GroupKey = std::pair<std::string, std::vector<int>>;
using Calls = std::vector<const LoggedCall*>;

std::string name_of(const GroupKey& group) {
  return fmt::format("group {} of ranks {}", group.first, list_ranks(group.second));
}

/// Collectives by group and rank; messages by group, sender, receiver and tag.
struct CallsByGroup {
  struct Messages {
    Calls sent, received;
  };
  std::map<GroupKey, std::map<int, Calls>> collectives;
  std::map<std::tuple<GroupKey, int, int, int>, Messages> messages;

  explicit CallsByGroup(const CallLogs& ranks) {
    for (const auto& [rank, calls] : ranks)
      for (const LoggedCall& call : calls) {
        const GroupKey group{call.axes, *call.ranks};
        if (!is_message(call)) {
          collectives[group][rank].push_back(&call);
          continue;
        }
        const int peer = call.ranks->at(static_cast<std::size_t>(call.peer));
        if (!ranks.contains(peer)) continue;
        if (call.operation == "send")
          messages[{group, rank, peer, call.tag}].sent.push_back(&call);
        else
          messages[{group, peer, rank, call.tag}].received.push_back(&call);
      }
  }
};

/// Whether two members agree on the rows that they exchange.
bool rows_match(const LoggedCall& a, std::size_t index_a, const LoggedCall& b, std::size_t index_b) {
  return a.rows.sent.at(index_b) == b.rows.received.at(index_a) &&
         b.rows.sent.at(index_a) == a.rows.received.at(index_b);
}

std::string compare(const GroupKey& group, int rank, const Calls& calls, int other,
                    const Calls& other_calls) {
  const auto index = [&](int r) {
    return static_cast<std::size_t>(std::ranges::find(group.second, r) - group.second.begin());
  };
  for (std::size_t i = 0; i < std::min(calls.size(), other_calls.size()); ++i) {
    const LoggedCall &a = *calls[i], &b = *other_calls[i];
    if (!same_call(a, b))
      return fmt::format(
          "{}: every member must make the same call; call {} is {} on rank {} and {} on rank {}",
          name_of(group), i + 1, describe(a), rank, describe(b), other);
    if (a.operation == "all_to_all" && !rows_match(a, index(rank), b, index(other)))
      return fmt::format("{}: sent and received rows of {} must match; ranks {} and {} differ",
                         name_of(group), describe(a), rank, other);
  }
  if (calls.size() == other_calls.size()) return "";
  return fmt::format(
      "{}: all members must make the same number of calls; rank {} makes {} and rank {} makes {}",
      name_of(group), rank, calls.size(), other, other_calls.size());
}

void check_collectives(const CallsByGroup& calls_by_group, const CallLogs& ranks,
                       std::vector<std::string>& faults) {
  static const Calls kNone;
  for (const auto& [group, members] : calls_by_group.collectives) {
    const auto& [first, calls] = *members.begin();
    for (const int other : group.second) {
      if (other == first || !ranks.contains(other)) continue;
      const auto found = members.find(other);
      std::string fault = compare(group, first, calls, other, found == members.end() ? kNone : found->second);
      if (!fault.empty()) faults.push_back(std::move(fault));
    }
  }
}

void check_messages(const CallsByGroup& calls, std::vector<std::string>& faults) {
  for (const auto& [key, ends] : calls.messages) {
    const auto& [group, from, to, tag] = key;
    const auto where =
        fmt::format("{}, messages with tag {} from rank {} to {}", name_of(group), tag, from, to);
    if (ends.sent.size() != ends.received.size())
      faults.push_back(fmt::format("{}: each send must have a receive; got {} sends and {} receives", where,
                                   ends.sent.size(), ends.received.size()));
    for (std::size_t i = 0; i < std::min(ends.sent.size(), ends.received.size()); ++i) {
      if (same_size(*ends.sent[i], *ends.received[i])) continue;
      faults.push_back(fmt::format("{}: sent and received tensors must match; message {} is {} and {}", where,
                                   i + 1, describe(*ends.sent[i]), describe(*ends.received[i])));
      break;
    }
  }
}

/// Replays the collectives; each waits for those members of its group that are given.
class DeadlockCheck {
 public:
  explicit DeadlockCheck(const CallLogs& ranks) {
    for (const auto& [rank, calls] : ranks)
      for (const LoggedCall& call : calls)
        if (!is_message(call)) remaining_[rank].push_back(&call);
  }

  /// True if all calls complete.
  bool replay() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [rank, calls] : remaining_)
        while (!calls.empty() && all_ready(*calls.front())) {
          advance(*calls.front());
          moved = true;
        }
    }
    return std::ranges::all_of(remaining_, [](const auto& entry) { return entry.second.empty(); });
  }

  [[nodiscard]] std::string describe_deadlock() const {
    std::vector<std::string> waits;
    for (const auto& [rank, calls] : remaining_)
      if (!calls.empty())
        waits.push_back(
            fmt::format("rank {} in {} of group {}", rank, describe(*calls.front()), calls.front()->axes));
    if (waits.size() > 4) waits.resize(4);
    return fmt::format("order of collectives must not deadlock; these ranks would wait for each other: {}",
                       fmt::join(waits, "; "));
  }

 private:
  bool all_ready(const LoggedCall& call) const {
    return std::ranges::all_of(*call.ranks, [&](int rank) {
      const auto found = remaining_.find(rank);
      if (found == remaining_.end()) return true;
      if (found->second.empty()) return false;
      const LoggedCall& next = *found->second.front();
      return next.axes == call.axes && *next.ranks == *call.ranks;
    });
  }
  void advance(const LoggedCall& call) {
    const auto ranks = call.ranks;
    for (const int rank : *ranks)
      if (const auto found = remaining_.find(rank); found != remaining_.end()) found->second.pop_front();
  }
  std::map<int, std::deque<const LoggedCall*>> remaining_;
};

}  // namespace

void CallLog::add(LoggedCall call) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::move(call));
}

std::vector<LoggedCall> CallLog::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

CallLog::Table CallLog::table() const {
  const std::lock_guard lock(mutex_);
  Table table;
  for (const LoggedCall& call : calls_) {
    Entry& entry = table[{call.axes, call.operation}];
    ++entry.calls;
    entry.bytes += call.bytes;
  }
  return table;
}

std::vector<std::string> call_mismatches(const CallLogs& ranks) {
  std::vector<std::string> faults;
  const CallsByGroup calls(ranks);
  check_collectives(calls, ranks, faults);
  check_messages(calls, faults);
  if (!faults.empty()) return faults;
  if (DeadlockCheck check(ranks); !check.replay()) faults.push_back(check.describe_deadlock());
  return faults;
}

std::vector<std::string> differences(int rank, const std::vector<LoggedCall>& calls, int other,
                                     const std::vector<LoggedCall>& other_calls) {
  // Ring neighbours alternate which one sends first, so sends and receives are compared separately.
  const auto stream_of = [](const LoggedCall& call) {
    return std::pair(call.axes, is_message(call) ? call.operation : "collective");
  };
  std::map<std::pair<std::string, std::string>, std::pair<Calls, Calls>> streams;
  for (const LoggedCall& call : calls) streams[stream_of(call)].first.push_back(&call);
  for (const LoggedCall& call : other_calls) streams[stream_of(call)].second.push_back(&call);
  std::vector<std::string> faults;
  for (const auto& [stream, both] : streams) {
    const auto& [mine, theirs] = both;
    const auto matches = [](const LoggedCall* a, const LoggedCall* b) {
      return a->operation == b->operation && a->what == b->what && a->dtype == b->dtype &&
             (a->dynamic_size || a->operation == "all_to_all" || a->shape == b->shape);
    };
    const auto [a, b] = std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end(), matches);
    if (a == mine.end() && b == theirs.end()) continue;
    faults.push_back(
        fmt::format("group {}: ranks {} and {} of one stage must make the same calls; {} {} is {} and {}",
                    stream.first, rank, other, stream.second, a - mine.begin() + 1,
                    a == mine.end() ? "none" : describe(**a), b == theirs.end() ? "none" : describe(**b)));
  }
  return faults;
}

}  // namespace colonnade::comm
