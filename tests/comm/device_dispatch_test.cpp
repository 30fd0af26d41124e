// Host and device tensors in one group: each uses the backend of its device.
#include "colonnade/comm/device_dispatch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "colonnade/comm/communicators.h"
#include "colonnade/comm/null_backend.h"
#include "colonnade/comm/rendezvous.h"
#include "colonnade/comm/thread_ranks.h"
#include "comm/collective_checks.h"
#include "support/backends.h"

namespace colonnade::comm {
namespace {

/// The thread backend handles host tensors; a logging backend handles meta tensors and rejects host tensors.
Group two_backend_group(Communicators& ranks, const std::shared_ptr<CallLog>& log) {
  const std::vector<int> all = ranks.world().ranks();
  const auto device =
      std::make_shared<test::DeviceOnlyBackend>(null_factory(log)->make(all, ranks.rank(), "device"));
  return {dispatch_by_device(ranks.factory()->make(all, ranks.rank(), "host"), device), "world"};
}

TEST(DeviceDispatchBackend, HostTensorsUseTheHostBackend) {
  run_ranks(2, [](Communicators& ranks) {
    const auto log = std::make_shared<CallLog>();
    const Group group = two_backend_group(ranks, log);
    test::check_collectives(group, at::kFloat);
    test::check_point_to_point(group, at::kFloat);
    test::check_texts(group);
    group.barrier("test");
    check_same_settings(group, {{"seed", "7"}});
    EXPECT_TRUE(log->table().empty());

    const Group alone(std::make_shared<test::DeviceOnlyBackend>(
                          null_factory(nullptr)->make(group.ranks(), ranks.rank(), "device")),
                      "world");
    EXPECT_THROW(alone.all_reduce(at::zeros({1}), "test").wait(), Error);
  });
}

TEST(DeviceDispatchBackend, DeviceTensorsUseTheDeviceBackend) {
  run_ranks(2, [](Communicators& ranks) {
    const auto log = std::make_shared<CallLog>();
    const Group group = two_backend_group(ranks, log);
    const int other = 1 - group.rank();
    const auto meta = at::TensorOptions().device(at::kMeta);
    const at::Tensor shard = at::empty({4}, meta), full = at::empty({8}, meta);
    group.all_reduce(shard, "test").wait();
    group.all_gather(full, shard, "test").wait();
    group.reduce_scatter(shard, full, "test").wait();
    group.broadcast(shard, 0, "test").wait();
    group.all_to_all(full, at::empty_like(full), "test").wait();
    group.send(shard, other, 0, "test").wait();
    group.recv(shard, other, 0, "test").wait();
    EXPECT_EQ(log->table().size(), 7U);
    for (const auto& [call, entry] : log->table()) EXPECT_EQ(entry.calls, 1) << call.second;
  });
}

TEST(DeviceDispatchBackend, BackendsMustHaveTheSameMembers) {
  const auto factory = null_factory(nullptr);
  EXPECT_THROW(dispatch_by_device(factory->make({0, 1}, 0, "a"), factory->make({0, 1}, 1, "b")), Error);
  EXPECT_THROW(dispatch_by_device(factory->make({0, 1}, 0, "a"), factory->make({0, 2}, 0, "b")), Error);
}

}  // namespace
}  // namespace colonnade::comm
