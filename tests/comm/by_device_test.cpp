// Host tensors and tensors of a device in one group: each goes over its own backend.
#include "colonnade/comm/by_device.h"

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

/// Threads carry host tensors, a counter carries meta tensors and refuses host tensors.
Group pair_of(Communicators& ranks, const std::shared_ptr<CallLog>& log) {
  const std::vector<int> all = ranks.world().ranks();
  const auto device =
      std::make_shared<test::DeviceOnly>(null_factory(log)->make(all, ranks.rank(), "device"));
  return {by_device(ranks.factory()->make(all, ranks.rank(), "host"), device), "world"};
}

TEST(ByDevice, HostTensorsPassThoughTheDeviceBackendRefusesThem) {
  run_ranks(2, [](Communicators& ranks) {
    const auto log = std::make_shared<CallLog>();
    const Group group = pair_of(ranks, log);
    test::check_collectives(group, at::kFloat);
    test::check_point_to_point(group, at::kFloat);
    test::check_texts(group);
    group.barrier("test");
    check_same_settings(group, {{"seed", "7"}});
    EXPECT_TRUE(log->table().empty());

    const Group alone(std::make_shared<test::DeviceOnly>(
                          null_factory(nullptr)->make(group.ranks(), ranks.rank(), "device")),
                      "world");
    EXPECT_THROW(alone.all_reduce(at::zeros({1}), "test").wait(), Error);
  });
}

TEST(ByDevice, TensorsOfTheDeviceGoOverItsBackend) {
  run_ranks(2, [](Communicators& ranks) {
    const auto log = std::make_shared<CallLog>();
    const Group group = pair_of(ranks, log);
    const int other = 1 - group.rank();
    const auto meta = at::TensorOptions().device(at::kMeta);
    const at::Tensor part = at::empty({4}, meta), whole = at::empty({8}, meta);
    group.all_reduce(part, "test").wait();
    group.all_gather(whole, part, "test").wait();
    group.reduce_scatter(part, whole, "test").wait();
    group.broadcast(part, 0, "test").wait();
    group.all_to_all(whole, at::empty_like(whole), "test").wait();
    group.send(part, other, 0, "test").wait();
    group.recv(part, other, 0, "test").wait();
    EXPECT_EQ(log->table().size(), 7U);
    for (const auto& [call, entry] : log->table()) EXPECT_EQ(entry.calls, 1) << call.second;
  });
}

TEST(ByDevice, BothBackendsHaveTheSameMembers) {
  const auto factory = null_factory(nullptr);
  EXPECT_THROW(by_device(factory->make({0, 1}, 0, "a"), factory->make({0, 1}, 1, "b")), Error);
  EXPECT_THROW(by_device(factory->make({0, 1}, 0, "a"), factory->make({0, 2}, 0, "b")), Error);
}

}  // namespace
}  // namespace colonnade::comm
