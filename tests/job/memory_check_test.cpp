// What a machine's memory is, under any control groups, and which runs are refused on it.
#include "colonnade/job/memory_check.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

#include "colonnade/base/error.h"
#include "job/runs.h"

namespace colonnade::job {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kKiB = 1024;

/// A root folder with a meminfo of 1000 KiB, and with the files of a test.
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

TEST_F(MachineMemory, IsAllOfItWhereNothingLimits) {
  EXPECT_EQ(machine_memory(root_), 1000 * kKiB);
  put("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(machine_memory(root_), 1000 * kKiB) << "groups that are not to be seen from here";
  put("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(machine_memory(root_), 1000 * kKiB);
  put("sys/fs/cgroup/a/memory.max", "2048000\n");
  EXPECT_EQ(machine_memory(root_), 1000 * kKiB) << "a limit above what is there";
  EXPECT_EQ(machine_memory(root_ / "none"), 0);
}

TEST_F(MachineMemory, IsTheSmallestLimitOfTheGroupsAround) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/memory.max", "max\n");
  put("sys/fs/cgroup/a/memory.max", "300000\n");
  put("sys/fs/cgroup/memory.max", "400000\n");
  EXPECT_EQ(machine_memory(root_), 300000);
  put("sys/fs/cgroup/memory.max", "200000\n");
  EXPECT_EQ(machine_memory(root_), 200000);
}

TEST_F(MachineMemory, KnowsGroupsOfVersion1) {
  put("proc/self/cgroup", "3:cpu,memory:/job/step\n1:cpu:/other\n0::/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500000\n");
  put("sys/fs/cgroup/memory/other/memory.limit_in_bytes", "1\n");
  EXPECT_EQ(machine_memory(root_), 500000);
}

TEST_F(MachineMemory, HasSwapBesides) {
  put("proc/meminfo", "MemTotal:   1000 kB\nSwapTotal:  24 kB\n");
  EXPECT_EQ(machine_memory(root_), 1024 * kKiB);
}

TEST_F(MachineMemory, HasNoMoreSwapThanItsGroupsAllow) {
  put("proc/meminfo", "MemTotal:   1000 kB\nSwapTotal:  24 kB\n");
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/memory.max", "300000\n");
  EXPECT_EQ(machine_memory(root_), 300000 + 24 * kKiB) << "nothing limits the swap";
  put("sys/fs/cgroup/a/b/memory.swap.max", "max\n");
  EXPECT_EQ(machine_memory(root_), 300000 + 24 * kKiB);
  put("sys/fs/cgroup/a/memory.swap.max", "5000\n");
  EXPECT_EQ(machine_memory(root_), 305000);
  put("sys/fs/cgroup/a/b/memory.swap.max", "0\n");
  EXPECT_EQ(machine_memory(root_), 300000);
}

TEST_F(MachineMemory, AndSwapHaveOneLimitInVersion1) {
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

TEST_F(MachineMemory, OfThisMachineIsNoMoreThanItsPagesAndSwap) {
  const std::int64_t here = machine_memory();
  EXPECT_GT(here, std::int64_t{1} << 28);
  std::ifstream in("/proc/meminfo");
  std::int64_t swap = 0;
  for (std::string word; in >> word;)
    if (word == "SwapTotal:") in >> swap;
  EXPECT_LE(here, std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE) + swap * kKiB);
}

/// fp32 weights of 4 layers and a vocabulary: 4 (12 h^2 + 13 h) + (v + s + 2) h elements.
config::Run small(int world, const std::string& more = "") {
  return test::settings(world,
                        test::words("--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 16 "
                                    "--max-position-embeddings 16 --vocab-size 128 "
                                    "--make-vocab-size-divisible-by 128 --micro-batch-size 1 " +
                                    more));
}
constexpr std::int64_t kElements = 4 * (12 * 64 * 64 + 13 * 64) + (128 + 16 + 2) * 64;

bool fits(const config::Run& run, std::int64_t memory, int ranks = 1,
          plan::Purpose purpose = plan::Purpose::kTrain) {
  try {
    require_memory(run, purpose, ranks, memory);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

/// Weight, gradient and two moments of each element in fp32, and what one micro-batch keeps.
TEST(RequireMemory, OfTrainingHoldsWeightsGradientsMomentsAndActivations) {
  const config::Run run = small(1);
  const std::int64_t states = 16 * kElements;
  EXPECT_FALSE(fits(run, states));
  EXPECT_TRUE(fits(run, states + states / 2));
  EXPECT_TRUE(fits(run, 0)) << "not known";
  const config::Run longer = small(1, "--micro-batch-size 64 ");
  EXPECT_FALSE(fits(longer, states + states / 2)) << "64 sequences keep more";
}

TEST(RequireMemory, OfAMachineIsThatOfAllItsRanks) {
  const std::int64_t states = 16 * kElements, room = states + states / 2;
  const config::Run replicas = small(4);
  EXPECT_FALSE(fits(replicas, room, 2));
  EXPECT_TRUE(fits(replicas, 2 * room, 2));
  EXPECT_FALSE(fits(replicas, 2 * states, 2));
  const config::Run pieces = small(4, "--pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 ");
  EXPECT_TRUE(fits(pieces, room + states / 2, 4)) << "together they hold one model";
  EXPECT_FALSE(fits(pieces, states, 4));
  EXPECT_TRUE(fits(pieces, states, 2)) << "half of them here";
}

TEST(RequireMemory, OfAModelIsItsWeights) {
  const config::Run run = small(1);
  EXPECT_TRUE(fits(run, 4 * kElements, 1, plan::Purpose::kModel));
  EXPECT_FALSE(fits(run, 4 * kElements - 1, 1, plan::Purpose::kModel));
}

std::string refusal(const config::Run& run) {
  try {
    require_memory(run, plan::Purpose::kTrain, 1, std::int64_t{1} << 35);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "it fits";
}

TEST(RequireMemory, RefusesSizesThatNoIntegerHolds) {
  EXPECT_THAT(refusal(small(1, "--hidden-size 200000000 --num-layers 1000000 ")),
              AllOf(HasSubstr("memory: "), HasSubstr("of weights for 1 rank and 32.0 GiB here"),
                    HasSubstr("lower --hidden-size or --num-layers")));
  EXPECT_THAT(refusal(small(1, "--num-layers 1000000 ")), HasSubstr("of weights"));
  EXPECT_THAT(refusal(small(1,
                            "--seq-length 1000000000 --max-position-embeddings 1000000000 "
                            "--position-embedding-type rope ")),
              AllOf(HasSubstr("of activations"), HasSubstr("lower --micro-batch-size or --seq-length")));
}

}  // namespace
}  // namespace colonnade::job
