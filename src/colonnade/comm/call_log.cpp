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

std::string in_words(const LoggedCall& call) {
  return fmt::format("{} \"{}\" of {} [{}]", call.operation, call.what, c10::toString(call.dtype),
                     fmt::join(call.shape, ", "));
}

bool same_size(const LoggedCall& a, const LoggedCall& b) {
  return a.dtype == b.dtype && (a.agreed || a.shape == b.shape);
}

/// The same collective, seen from two members.
bool same_call(const LoggedCall& a, const LoggedCall& b) {
  if (a.operation != b.operation || a.what != b.what || a.peer != b.peer) return false;
  // Of an exchange each has rows of its own; who is given is compared by pairs.
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

/// By group and rank, the collectives; by group, sender, receiver and tag, the messages at both ends.
struct Sorted {
  struct Ends {
    Calls sent, received;
  };
  std::map<GroupKey, std::map<int, Calls>> collectives;
  std::map<std::tuple<GroupKey, int, int, int>, Ends> messages;

  explicit Sorted(const CallsOfRanks& ranks) {
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

/// What each sends to another is what that one receives from it.
bool rows_meet(const LoggedCall& a, std::size_t index_a, const LoggedCall& b, std::size_t index_b) {
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
          name_of(group), i + 1, in_words(a), rank, in_words(b), other);
    if (a.operation == "all_to_all" && !rows_meet(a, index(rank), b, index(other)))
      return fmt::format("{}: the rows of {} must be received as they are sent; ranks {} and {} differ",
                         name_of(group), in_words(a), rank, other);
  }
  if (calls.size() == other_calls.size()) return "";
  return fmt::format("{}: every member must make as many calls; rank {} makes {} and rank {} makes {}",
                     name_of(group), rank, calls.size(), other, other_calls.size());
}

void check_collectives(const Sorted& sorted, const CallsOfRanks& ranks, std::vector<std::string>& faults) {
  static const Calls kNone;
  for (const auto& [group, members] : sorted.collectives) {
    const auto& [first, calls] = *members.begin();
    for (const int other : group.second) {
      if (other == first || !ranks.contains(other)) continue;
      const auto found = members.find(other);
      std::string fault = compare(group, first, calls, other, found == members.end() ? kNone : found->second);
      if (!fault.empty()) faults.push_back(std::move(fault));
    }
  }
}

void check_messages(const Sorted& sorted, std::vector<std::string>& faults) {
  for (const auto& [lane, ends] : sorted.messages) {
    const auto& [group, from, to, tag] = lane;
    const auto where = fmt::format("{}, messages {} from rank {} to {}", name_of(group), tag, from, to);
    if (ends.sent.size() != ends.received.size())
      faults.push_back(fmt::format("{}: each send must meet a receive; got {} sends and {} receives", where,
                                   ends.sent.size(), ends.received.size()));
    for (std::size_t i = 0; i < std::min(ends.sent.size(), ends.received.size()); ++i) {
      if (same_size(*ends.sent[i], *ends.received[i])) continue;
      faults.push_back(fmt::format("{}: what is sent must be what is received; message {} is {} and {}",
                                   where, i + 1, in_words(*ends.sent[i]), in_words(*ends.received[i])));
      break;
    }
  }
}

/// Plays the collectives: each waits for the given members of its group.
class Waiting {
 public:
  explicit Waiting(const CallsOfRanks& ranks) {
    for (const auto& [rank, calls] : ranks)
      for (const LoggedCall& call : calls)
        if (!is_message(call)) left_[rank].push_back(&call);
  }

  /// True when all of them get through.
  bool play() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [rank, calls] : left_)
        while (!calls.empty() && all_at(*calls.front())) {
          advance(*calls.front());
          moved = true;
        }
    }
    return std::ranges::all_of(left_, [](const auto& entry) { return entry.second.empty(); });
  }

  [[nodiscard]] std::string who_waits() const {
    std::vector<std::string> who;
    for (const auto& [rank, calls] : left_)
      if (!calls.empty())
        who.push_back(
            fmt::format("rank {} in {} of group {}", rank, in_words(*calls.front()), calls.front()->axes));
    if (who.size() > 4) who.resize(4);
    return fmt::format("order: no two ranks may wait for each other; these would, for ever: {}",
                       fmt::join(who, "; "));
  }

 private:
  bool all_at(const LoggedCall& call) const {
    return std::ranges::all_of(*call.ranks, [&](int rank) {
      const auto found = left_.find(rank);
      if (found == left_.end()) return true;
      if (found->second.empty()) return false;
      const LoggedCall& next = *found->second.front();
      return next.axes == call.axes && *next.ranks == *call.ranks;
    });
  }
  void advance(const LoggedCall& call) {
    const auto ranks = call.ranks;
    for (const int rank : *ranks)
      if (const auto found = left_.find(rank); found != left_.end()) found->second.pop_front();
  }
  std::map<int, std::deque<const LoggedCall*>> left_;
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

std::vector<std::string> misfits(const CallsOfRanks& ranks) {
  std::vector<std::string> faults;
  const Sorted sorted(ranks);
  check_collectives(sorted, ranks, faults);
  check_messages(sorted, faults);
  if (!faults.empty()) return faults;
  if (Waiting waiting(ranks); !waiting.play()) faults.push_back(waiting.who_waits());
  return faults;
}

std::vector<std::string> differences(int rank, const std::vector<LoggedCall>& calls, int other,
                                     const std::vector<LoggedCall>& other_calls) {
  // Neighbours in a ring take turns at sending first, so either end of messages has an order of its own.
  const auto line_of = [](const LoggedCall& call) {
    return std::pair(call.axes, is_message(call) ? call.operation : "collective");
  };
  std::map<std::pair<std::string, std::string>, std::pair<Calls, Calls>> lines;
  for (const LoggedCall& call : calls) lines[line_of(call)].first.push_back(&call);
  for (const LoggedCall& call : other_calls) lines[line_of(call)].second.push_back(&call);
  std::vector<std::string> faults;
  for (const auto& [line, both] : lines) {
    const auto& [mine, theirs] = both;
    const auto unlike = [](const LoggedCall* a, const LoggedCall* b) {
      return a->operation == b->operation && a->what == b->what && a->dtype == b->dtype &&
             (a->agreed || a->operation == "all_to_all" || a->shape == b->shape);
    };
    const auto [a, b] = std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end(), unlike);
    if (a == mine.end() && b == theirs.end()) continue;
    faults.push_back(
        fmt::format("group {}: ranks {} and {} of one stage must make the same calls; {} {} is {} and {}",
                    line.first, rank, other, line.second, a - mine.begin() + 1,
                    a == mine.end() ? "none" : in_words(**a), b == theirs.end() ? "none" : in_words(**b)));
  }
  return faults;
}

}  // namespace colonnade::comm
