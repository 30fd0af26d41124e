// How workers of a Prefetcher are scheduled; what it gives is tested by the batches that it makes.
#include "colonnade/data/prefetcher.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace colonnade::data {
namespace {

// Else a worker that next() wakes takes the processor from its caller.
TEST(PrefetcherTest, WorkersDoNotPushTheirCallerAside) {
  const int own = ::sched_getscheduler(0);
  int here = own;  // what a thread that asks for it gets: some systems have no other policy
  std::jthread([&here] {
    const sched_param unused{};
    ::sched_setscheduler(0, SCHED_BATCH, &unused);
    here = ::sched_getscheduler(0);
  }).join();
  const auto policy_of = [](int workers) {
    return Prefetcher<int>([](std::int64_t) { return ::sched_getscheduler(0); }, workers).next();
  };
  EXPECT_EQ(policy_of(0), own);
  EXPECT_EQ(policy_of(2), own == SCHED_OTHER ? here : own);
  int idle = -1;
  std::jthread([&] {
    const sched_param unused{};
    if (::sched_setscheduler(0, SCHED_IDLE, &unused) == 0) idle = policy_of(2);
  }).join();
  EXPECT_TRUE(idle == -1 || idle == SCHED_IDLE) << "a policy that was chosen";
}

}  // namespace
}  // namespace colonnade::data
