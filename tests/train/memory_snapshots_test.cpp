// Memory snapshots: names, and on a GPU a pickle with the history.
#include "colonnade/train/memory_snapshots.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "checkpoint/fixtures.h"
#include "colonnade/base/files.h"

namespace colonnade::train {
namespace {

namespace fs = std::filesystem;

TEST(MemorySnapshots, NamesEndWithTheRank) {
  EXPECT_EQ(with_suffix("a.b/snapshot.pickle", "_3"), fs::path("a.b/snapshot_3.pickle"));
  EXPECT_EQ(with_suffix("snapshot", "_oom_rank_0"), fs::path("snapshot_oom_rank_0"));
}

TEST(MemorySnapshots, WriteNothingUnlessRequested) {
  const checkpoint::test::TempFolder folder;
  config::Run run;
  MemorySnapshots(run, folder.path(), 0).write();
  run.profiling.record_memory_history = true;
  run.profiling.profile_ranks = {1};
  MemorySnapshots(run, folder.path(), 0).write();
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(GpuMemorySnapshots, AreAPickleWithTheHistory) {
  const checkpoint::test::TempFolder folder;
  config::Run run;
  run.profiling.record_memory_history = true;
  const MemorySnapshots snapshots(run, folder.path(), 2);
  const at::Tensor x = at::ones({1 << 20}, at::kCUDA);
  snapshots.write();
  const std::string pickle = read_file(folder.path() / "snapshot_2.pickle");
  EXPECT_EQ(pickle.substr(0, 1), "\x80") << "protocol of the pickle";
  EXPECT_THAT(pickle, testing::HasSubstr("device_traces"));
}

}  // namespace
}  // namespace colonnade::train
