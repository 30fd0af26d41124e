// The backend of dry runs: nothing moves, everything is counted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "colonnade/comm/communicators.h"

namespace colonnade::comm {

/// What the groups of one dry run would have moved. Safe to use from several threads.
class Traffic {
 public:
  struct Entry {
    std::int64_t calls = 0;
    std::int64_t bytes = 0;  ///< of the larger tensor of each call, not what crosses the wire
  };
  /// Key: axes of the group and operation, {"tp", "all_reduce"}.
  using Table = std::map<std::pair<std::string, std::string>, Entry>;

  void add(const std::string& axes, std::string_view operation, std::int64_t bytes);
  [[nodiscard]] Table table() const;

 private:
  mutable std::mutex mutex_;
  Table table_;
};

/// Groups that return at once. Meta tensors stay as they are. For tensors with memory every peer is
/// taken to hold this rank's values: gathers repeat `in`, reductions keep the values, a receive leaves
/// them. `traffic` may be null.
std::shared_ptr<GroupFactory> null_factory(std::shared_ptr<Traffic> traffic);

}  // namespace colonnade::comm
