// The dry run's backend: meta tensors pass, calls and bytes are counted.
#include "colonnade/comm/null_backend.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace colonnade::comm {
namespace {

Communicators dry(int rank, const std::shared_ptr<CallLog>& log) {
  config::Parallel parallel;
  parallel.world_size = 4096;
  parallel.tensor_model_parallel_size = 8;
  return {layout::Mesh(parallel), rank, null_factory(log)};
}

TEST(NullBackend, CountsBytesPerGroupAndOperation) {
  const auto log = std::make_shared<CallLog>();
  Communicators ranks = dry(1234, log);
  const Group tp = ranks.group({layout::Axis::kTp});
  const Group dp = ranks.group({layout::Axis::kDp});
  const auto meta = at::TensorOptions().device(at::kMeta).dtype(at::kBFloat16);
  const at::Tensor part = at::empty({4, 16}, meta), whole = at::empty({32, 16}, meta);
  tp.all_reduce(part, "test").wait();
  tp.all_reduce(part, "test").wait();
  tp.all_gather(whole, part, "test").wait();
  tp.reduce_scatter(part, whole, "test").wait();
  dp.broadcast(part, 0, "test").wait();
  dp.send(part, 3, 0, "test").wait();
  dp.recv(part, 3, 0, "test").wait();
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

TEST(NullBackend, PeersAreTakenToHoldTheSameValues) {
  Communicators ranks = dry(9, nullptr);
  const Group tp = ranks.group({layout::Axis::kTp});
  const at::Tensor part = at::arange(3, at::kFloat);
  at::Tensor whole = at::zeros({24});
  tp.all_gather(whole, part, "test").wait();
  EXPECT_TRUE(whole.equal(part.repeat({8})));
  at::Tensor back = at::zeros({3});
  tp.reduce_scatter(back, at::arange(24, at::kFloat), "test").wait();
  EXPECT_TRUE(back.equal(at::arange(3, 6, at::kFloat)));  // tp rank 1 owns the second slice
  EXPECT_EQ(tp.all_gather_text("settings", "test"), std::vector<std::string>(8, "settings"));
}

}  // namespace
}  // namespace colonnade::comm
