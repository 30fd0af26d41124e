// Available memory under cgroup v1 and v2 limits.
#include "colonnade/base/machine_memory.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace colonnade {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kKiB = 1024;

/// A root folder with a meminfo of 1000 KiB and the files of a test.
class MachineMemory : public testing::Test {
 protected:
  MachineMemory() {
    std::string name = (fs::temp_directory_path() / "memory-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    put("proc/meminfo", "MemFree:  10 kB\nMemTotal:   1000 kB\nSwapTotal:  0 kB\n");
  }
  ~MachineMemory() override { fs::remove_all(root_); }
  void put(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  fs::path root_;
};

TEST_F(MachineMemory, EqualsMemTotalWithoutLimits) {
  EXPECT_EQ(machine_memory(root_), 1000 * kKiB);
  put("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(machine_memory(root_), 1000 * kKiB) << "cgroup not mounted here";
  put("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(machine_memory(root_), 1000 * kKiB);
  put("sys/fs/cgroup/a/memory.max", "2048000\n");
  EXPECT_EQ(machine_memory(root_), 1000 * kKiB) << "limit above MemTotal";
  EXPECT_EQ(machine_memory(root_ / "none"), 0);
}

TEST_F(MachineMemory, IsTheSmallestLimitOfTheCgroupAndItsAncestors) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/memory.max", "max\n");
  put("sys/fs/cgroup/a/memory.max", "300000\n");
  put("sys/fs/cgroup/memory.max", "400000\n");
  EXPECT_EQ(machine_memory(root_), 300000);
  put("sys/fs/cgroup/memory.max", "200000\n");
  EXPECT_EQ(machine_memory(root_), 200000);
}

TEST_F(MachineMemory, ReadsCgroupV1Limits) {
  put("proc/self/cgroup", "3:cpu,memory:/job/step\n1:cpu:/other\n0::/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500000\n");
  put("sys/fs/cgroup/memory/other/memory.limit_in_bytes", "1\n");
  EXPECT_EQ(machine_memory(root_), 500000);
}

TEST_F(MachineMemory, IncludesSwap) {
  put("proc/meminfo", "MemTotal:   1000 kB\nSwapTotal:  24 kB\n");
  EXPECT_EQ(machine_memory(root_), 1024 * kKiB);
}

TEST_F(MachineMemory, LimitsSwapByItsCgroups) {
  put("proc/meminfo", "MemTotal:   1000 kB\nSwapTotal:  24 kB\n");
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/memory.max", "300000\n");
  EXPECT_EQ(machine_memory(root_), 300000 + 24 * kKiB) << "no swap limit";
  put("sys/fs/cgroup/a/b/memory.swap.max", "max\n");
  EXPECT_EQ(machine_memory(root_), 300000 + 24 * kKiB);
  put("sys/fs/cgroup/a/memory.swap.max", "5000\n");
  EXPECT_EQ(machine_memory(root_), 305000);
  put("sys/fs/cgroup/a/b/memory.swap.max", "0\n");
  EXPECT_EQ(machine_memory(root_), 300000);
}

TEST_F(MachineMemory, MemoryAndSwapShareOneLimitInCgroupV1) {
  put("proc/meminfo", "MemTotal:   1000 kB\nSwapTotal:  24 kB\n");
  put("proc/self/cgroup", "4:memory:/job\n");
  put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500000\n");
  put("sys/fs/cgroup/memory/job/memory.memsw.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(machine_memory(root_), 500000 + 24 * kKiB);
  put("sys/fs/cgroup/memory/job/memory.memsw.limit_in_bytes", "510000\n");
  EXPECT_EQ(machine_memory(root_), 510000);
  put("sys/fs/cgroup/memory/job/memory.memsw.limit_in_bytes", "500000\n");
  EXPECT_EQ(machine_memory(root_), 500000);
}

TEST_F(MachineMemory, OfThisMachineIsAtMostItsPagesAndSwap) {
  const std::int64_t here = machine_memory();
  EXPECT_GT(here, std::int64_t{1} << 28);
  std::ifstream in("/proc/meminfo");
  std::int64_t swap = 0;
  for (std::string word; in >> word;)
    if (word == "SwapTotal:") in >> swap;
  EXPECT_LE(here, std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE) + swap * kKiB);
}

}  // namespace
}  // namespace colonnade
