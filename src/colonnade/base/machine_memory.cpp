// See machine_memory.h.
#include "colonnade/base/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace colonnade {
namespace {

namespace fs = std::filesystem;

/// Bytes of the row `name` ("MemTotal:      1024 kB") of a meminfo file; 0 when there is none.
std::int64_t meminfo(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    std::int64_t kib = 0;
    if (word == name + ":" && in >> kib) return kib * 1024;
  }
  return 0;
}

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// The smallest limit in `file` of `group` and its ancestors; kNoLimit if there is none or it is "max".
std::int64_t smallest_limit(const fs::path& mount, fs::path group, const char* file) {
  std::int64_t smallest = kNoLimit;
  for (;; group = group.parent_path()) {
    std::int64_t limit = 0;
    if (std::ifstream(mount / group.relative_path() / file) >> limit) smallest = std::min(smallest, limit);
    if (group == group.parent_path()) return smallest;
  }
}

/// Limits in bytes on memory, on swap, and on their sum.
struct Limits {
  std::int64_t memory = kNoLimit, swap = kNoLimit, both = kNoLimit;
};

/// Limits of this process's cgroups. Rows of /proc/self/cgroup: "4:memory:/a/b" in v1, "0::/a/b" in v2.
Limits group_limits(const fs::path& root) {
  const fs::path mount = root / "sys/fs/cgroup", memory = mount / "memory";
  Limits limits;
  std::ifstream rows(root / "proc/self/cgroup");
  for (std::string row; std::getline(rows, row);) {
    const std::size_t first = row.find(':'), second = row.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = row.substr(first + 1, second - first - 1), group = row.substr(second + 1);
    if (controllers.empty()) {
      limits.memory = std::min(limits.memory, smallest_limit(mount, group, "memory.max"));
      limits.swap = std::min(limits.swap, smallest_limit(mount, group, "memory.swap.max"));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      limits.memory = std::min(limits.memory, smallest_limit(memory, group, "memory.limit_in_bytes"));
      limits.both = std::min(limits.both, smallest_limit(memory, group, "memory.memsw.limit_in_bytes"));
    }
  }
  return limits;
}

}  // namespace

std::int64_t machine_memory(const fs::path& root) {
  const fs::path file = root / "proc/meminfo";
  const std::int64_t all = meminfo(file, "MemTotal");
  if (all == 0) return 0;
  const Limits limits = group_limits(root);
  return std::min(std::min(all, limits.memory) + std::min(meminfo(file, "SwapTotal"), limits.swap),
                  limits.both);
}

}  // namespace colonnade
