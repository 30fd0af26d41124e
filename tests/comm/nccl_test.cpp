// NCCL in a world of one (more ranks need more GPUs), and the device index of a group.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "colonnade/comm/c10d_backends.h"
#include "support/device.h"

namespace colonnade::comm {
namespace {

GroupSpec single_rank_spec() {
  return {.store = c10::make_intrusive<c10d::HashStore>(), .ranks = {0}, .timeout = std::chrono::seconds(60)};
}

TEST(GpuNccl, CollectivesOfAWorldOfOneCopy) {
  if (!test::device().is_cuda()) GTEST_SKIP() << "needs a GPU and COLONNADE_TEST_DEVICE=cuda";
  const auto backend = make_nccl(single_rank_spec());
  EXPECT_EQ(backend->device(), test::device());
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kLong}) {
    const at::Tensor x = at::arange(1, 1001, test::options(type));
    at::Tensor reduced = x.clone();
    backend->all_reduce(reduced, Reduce::kSum, {"all_reduce"}).wait();
    EXPECT_TRUE(at::equal(reduced, x));
    backend->all_reduce(reduced, Reduce::kMax, {"all_reduce"}).wait();
    EXPECT_TRUE(at::equal(reduced, x));
    backend->broadcast(reduced, 0, {"broadcast"}).wait();
    EXPECT_TRUE(at::equal(reduced, x));
    at::Tensor out = at::zeros_like(x);
    backend->all_gather(out, x, {"all_gather"}).wait();
    EXPECT_TRUE(at::equal(out, x));
    backend->reduce_scatter(out.zero_(), x, {"reduce_scatter"}).wait();
    EXPECT_TRUE(at::equal(out, x));
    backend->all_to_all(out.zero_(), x, {{x.size(0)}, {x.size(0)}}, {"all_to_all"}).wait();
    EXPECT_TRUE(at::equal(out, x));
  }
  backend->barrier({"barrier"});
}

TEST(BaseGroupSpec, UsesTheDeviceIndexNotTheLocalRank) {
  launch::RankEnvironment place;
  place.local_rank = 3;
  EXPECT_EQ(base_group_spec(place, {.cuda = true}).device_index, 0);
  EXPECT_EQ(base_group_spec(place, {.cuda = true, .device_index = 2}).device_index, 2);
}

}  // namespace
}  // namespace colonnade::comm
