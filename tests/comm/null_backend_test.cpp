// Backend of dry runs: accepts meta tensors, counts calls and bytes.
#include "colonnade/comm/null_backend.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace colonnade::comm {
namespace {

Communicators dry_communicators(int rank, const std::shared_ptr<CallLog>& log) {
  config::Parallel parallel;
  parallel.world_size = 4096;
  parallel.tensor_model_parallel_size = 8;
  return {layout::Mesh(parallel), rank, null_factory(log)};
}

TEST(NullBackend, CountsBytesPerGroupAndOperation) {
  const auto log = std::make_shared<CallLog>();
  Communicators ranks = dry_communicators(1234, log);
  const Group tp = ranks.group({layout::Axis::kTp});
  const Group dp = ranks.group({layout::Axis::kDp});
  const auto meta = at::TensorOptions().device(at::kMeta).dtype(at::kBFloat16);
  const at::Tensor shard = at::empty({4, 16}, meta), full = at::empty({32, 16}, meta);
  tp.all_reduce(shard, "test").wait();
  tp.all_reduce(shard, "test").wait();
  tp.all_gather(full, shard, "test").wait();
  tp.reduce_scatter(shard, full, "test").wait();
  dp.broadcast(shard, 0, "test").wait();
  dp.send(shard, 3, 0, "test").wait();
  dp.recv(shard, 3, 0, "test").wait();
  dp.barrier("test");
  const CallLog::Table table = log->table();
  EXPECT_EQ(table.at({"tp", "all_reduce"}).calls, 2);
  EXPECT_EQ(table.at({"tp", "all_reduce"}).bytes, 2 * 4 * 16 * 2);
  EXPECT_EQ(table.at({"tp", "all_gather"}).bytes, 32 * 16 * 2);
  EXPECT_EQ(table.at({"tp", "reduce_scatter"}).bytes, 32 * 16 * 2);
  EXPECT_EQ(table.at({"dp", "send"}).bytes, 4 * 16 * 2);
  EXPECT_EQ(table.at({"dp", "barrier"}).calls, 1);
  EXPECT_EQ(dp.size(), 512);
  EXPECT_EQ(dp.rank(), 1234 / 8);
}

TEST(NullBackend, AssumesEqualValuesOnAllPeers) {
  Communicators ranks = dry_communicators(9, nullptr);
  const Group tp = ranks.group({layout::Axis::kTp});
  const at::Tensor shard = at::arange(3, at::kFloat);
  at::Tensor full = at::zeros({24});
  tp.all_gather(full, shard, "test").wait();
  EXPECT_TRUE(full.equal(shard.repeat({8})));
  at::Tensor scattered = at::zeros({3});
  tp.reduce_scatter(scattered, at::arange(24, at::kFloat), "test").wait();
  EXPECT_TRUE(scattered.equal(at::arange(3, 6, at::kFloat)));  // tp rank 1 owns the second slice
  EXPECT_EQ(tp.all_gather_text("settings", "test"), std::vector<std::string>(8, "settings"));
}

}  // namespace
}  // namespace colonnade::comm
