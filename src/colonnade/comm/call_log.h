// Communication recorded in a dry run, and checks that the ranks' calls match.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/comm/group.h"

namespace colonnade::comm {

/// One recorded call on a group.
struct LoggedCall {
  std::shared_ptr<const std::vector<int>> ranks;  ///< global ranks of the members
  std::string axes;                               ///< axes of the group: "tp"
  std::string operation;                          ///< "all_reduce", ...
  std::string what;                               ///< name given by the caller
  std::vector<std::int64_t> shape;  ///< shape of the input; of a receive, of the received tensor
  at::ScalarType dtype = at::kFloat;
  std::int64_t bytes = 0;  ///< size of the larger tensor, not the bytes on the wire
  Rows rows;               ///< row counts of an all_to_all
  int peer = -1;           ///< index in `ranks` of a message's peer or of a broadcast's root
  int tag = 0;
  bool dynamic_size = false;  ///< size agreed on at run time: texts, and sums keyed by gathered names
};

/// Calls of one rank in issue order. Thread-safe.
class CallLog {
 public:
  struct Entry {
    std::int64_t calls = 0;
    std::int64_t bytes = 0;
  };
  /// Key: (axes of the group, operation), such as {"tp", "all_reduce"}.
  using Table = std::map<std::pair<std::string, std::string>, Entry>;

  void add(LoggedCall call);
  [[nodiscard]] std::vector<LoggedCall> calls() const;
  [[nodiscard]] Table table() const;

 private:
  mutable std::mutex mutex_;
  std::vector<LoggedCall> calls_;
};

/// Call logs by global rank.
using CallLogs = std::map<int, std::vector<LoggedCall>>;

/// Mismatches that would make these ranks fail or hang when run together, one sentence each; empty if none.
/// Checked for the given ranks: members of a group make the same calls with the same shapes in the same
/// order; every send has a matching receive, in order for each tag; collectives of different groups cannot
/// deadlock.
std::vector<std::string> call_mismatches(const CallLogs& ranks);

/// Differences between two ranks of the same stage (other data or tensor rank). Collectives, sends and
/// receives are compared per axes in their own order, whoever the members are; their interleaving is free.
/// Empty if the ranks match.
std::vector<std::string> differences(int rank, const std::vector<LoggedCall>& calls, int other,
                                     const std::vector<LoggedCall>& other_calls);

}  // namespace colonnade::comm
