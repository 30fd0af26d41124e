// What ranks of a dry run would have said to each other, and whether they would have understood each other.
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

/// One call of a group.
struct LoggedCall {
  std::shared_ptr<const std::vector<int>> ranks;  ///< the group's members in the world
  std::string axes;                               ///< of the group: "tp"
  std::string operation;                          ///< "all_reduce", ...
  std::string what;                               ///< the caller's name for it
  std::vector<std::int64_t> shape;                ///< of what goes in; of a receive: of what comes
  at::ScalarType dtype = at::kFloat;
  std::int64_t bytes = 0;  ///< of the larger tensor, not what crosses the wire
  Rows rows;               ///< of all_to_all
  int peer = -1;           ///< index in `ranks` of a message's other end or of a broadcast's root
  int tag = 0;
  bool agreed = false;  ///< ranks agree on the size at run time: texts, and sums whose names were texts
};

/// The calls of one rank, in its order. Safe to use from several threads.
class CallLog {
 public:
  struct Entry {
    std::int64_t calls = 0;
    std::int64_t bytes = 0;
  };
  /// Key: axes of the group and operation, {"tp", "all_reduce"}.
  using Table = std::map<std::pair<std::string, std::string>, Entry>;

  void add(LoggedCall call);
  [[nodiscard]] std::vector<LoggedCall> calls() const;
  [[nodiscard]] Table table() const;

 private:
  mutable std::mutex mutex_;
  std::vector<LoggedCall> calls_;
};

/// Logs by rank in the world.
using CallsOfRanks = std::map<int, std::vector<LoggedCall>>;

/// What would go wrong if these ranks ran together, a sentence each; empty when all fits. Of every group,
/// those of its members that are given make the same calls with the same shapes in the same order; what one
/// rank sends another of them receives, in the same order for each tag; and no two of them wait for each
/// other in collectives of different groups.
std::vector<std::string> misfits(const CallsOfRanks& ranks);

/// Where two ranks that stand for the same kind of rank (a stage, seen from other data or tensor ranks)
/// differ: by axes, whoever the members are, the collectives, what is sent and what is received, each in one
/// order; which of these comes first is a rank's own choice. Empty when they are alike.
std::vector<std::string> differences(int rank, const std::vector<LoggedCall>& calls, int other,
                                     const std::vector<LoggedCall>& other_calls);

}  // namespace colonnade::comm
