// Scheduling policy of Prefetcher workers; the batches are covered by the tests of batches.
#include "colonnade/data/prefetcher.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace colonnade::data {
namespace {

// Otherwise a worker woken by next() would preempt the caller.
TEST(PrefetcherTest, WorkersDoNotPreemptTheCaller) {
  const int own = ::sched_getscheduler(0);
  int here = own;  // the policy that a thread can get: some systems have no other
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
  EXPECT_TRUE(idle == -1 || idle == SCHED_IDLE) << "an explicit policy is kept";
}

}  // namespace
}  // namespace colonnade::data
