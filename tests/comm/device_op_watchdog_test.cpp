// Watchdog of device operations: end of tickets, published waits, failures and timeouts.
#include "colonnade/comm/device_op_watchdog.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "colonnade/comm/null_backend.h"
#include "support/backends.h"

namespace colonnade::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

/// Waits at most 10 s for `condition`.
template <typename Condition>
bool eventually(const Condition& condition) {
  for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(5));
  return condition();
}

/// A fake device operation that completes or fails when the test says so.
struct FakeOp {
  std::atomic<bool> completed{false};
  std::atomic<bool> failed{false};
  std::atomic<int> polls{0};
};

/// Returns when the watchdog has polled after the test's last change.
void wait_until_polled(const FakeOp& op) {
  const int seen = op.polls;
  EXPECT_TRUE(eventually([&] { return op.polls >= seen + 3; }));
}

/// Like NCCL: wait() returns at once.
class AsyncBackend final : public test::ForwardingBackend {
 public:
  AsyncBackend(DeviceOpWatchdog& watchdog, std::vector<std::shared_ptr<FakeOp>>& ops)
      : ForwardingBackend(null_factory(nullptr)->make({0, 1}, 0, "test")), watchdog_(watchdog), ops_(ops) {}
  Work all_reduce(at::Tensor, Reduce, const Call& call) override {
    const auto fake = ops_.emplace_back(std::make_shared<FakeOp>());
    const auto op = watchdog_.add(call, [fake] {
      ++fake->polls;
      if (fake->failed) throw std::runtime_error("the peer hung up");
      return fake->completed.load();
    });
    return Work([this, op] {
      watchdog_.check();
      op->host_waited = true;
    });
  }

 private:
  DeviceOpWatchdog& watchdog_;
  std::vector<std::shared_ptr<FakeOp>>& ops_;
};

/// A rank with a group and its own progress page.
struct Rank {
  explicit Rank(milliseconds timeout, milliseconds grace = seconds(60))
      : watchdog(
            timeout, [this] { declared_lost = true; }, grace) {
    const ProgressScope scope(page);
    group = Group(std::make_shared<AsyncBackend>(watchdog, ops), "dp");
  }
  [[nodiscard]] std::uint64_t finished() const { return page.read().groups.at(0).finished; }
  [[nodiscard]] std::string published_wait() const {
    const auto now = page.read();
    return now.waiting ? now.waiting->what : "";
  }

  Progress page;
  std::atomic<bool> declared_lost{false};
  std::vector<std::shared_ptr<FakeOp>> ops;
  DeviceOpWatchdog watchdog;
  Group group;
};

TEST(DeviceOpWatchdog, TicketsEndWhenTheDeviceCompletes) {
  Rank rank(seconds(60));
  rank.group.all_reduce(at::zeros({1}), "first").wait();
  rank.group.all_reduce(at::zeros({1}), "second").wait();
  wait_until_polled(*rank.ops[0]);
  EXPECT_EQ(rank.finished(), 0U);
  EXPECT_NE(rank.published_wait(), "") << "the launcher must see that this rank waits in a collective";
  rank.ops[1]->completed = true;
  EXPECT_TRUE(eventually([&] { return rank.finished() == 1; }));
  EXPECT_TRUE(eventually([&] { return rank.published_wait() == "first"; })) << "the oldest running operation";
  rank.ops[0]->completed = true;
  EXPECT_TRUE(eventually([&] { return rank.finished() == 2 && rank.published_wait().empty(); }));
}

TEST(DeviceOpWatchdog, OperationsWithoutAHostWaitAreNotPublished) {
  Rank rank(seconds(60));
  Work work = rank.group.all_reduce(at::zeros({1}), "bucket");
  wait_until_polled(*rank.ops[0]);
  EXPECT_EQ(rank.published_wait(), "");
  rank.ops[0]->completed = true;
  work.wait();
  EXPECT_TRUE(eventually([&] { return rank.finished() == 1; }));
}

TEST(DeviceOpWatchdog, AFailedOperationLosesTheGroup) {
  Rank rank(seconds(60));
  rank.group.all_reduce(at::zeros({1}), "sum").wait();
  rank.ops[0]->failed = true;
  ASSERT_TRUE(eventually([&] { return !rank.page.read().note.empty(); }));
  try {
    rank.group.all_reduce(at::zeros({1}), "next").wait();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("all_reduce \"next\""));
    EXPECT_THAT(error.what(), HasSubstr("all_reduce \"sum\" on dp: the peer hung up"));
  }
  EXPECT_FALSE(rank.declared_lost);
  EXPECT_EQ(rank.published_wait(), "sum") << "the wait must remain visible to the launcher";
}

TEST(DeviceOpWatchdog, ATimeoutCallsTheHandlerAfterTheGracePeriod) {
  Rank rank(milliseconds(100), milliseconds(50));
  Work work = rank.group.all_reduce(at::zeros({1}), "sum");
  EXPECT_TRUE(eventually([&] { return rank.declared_lost.load(); }));
  EXPECT_THAT(rank.page.read().note, HasSubstr("must complete within 0.1 s; it is still running"));
  EXPECT_THROW(rank.watchdog.check(), CommError);
  EXPECT_THROW(work.wait(), CommError);
}

TEST(DeviceOpWatchdog, TheTimeoutStartsWhenTheOperationBecomesTheOldest) {
  Rank rank(milliseconds(3500), milliseconds(50));  // longer than one operation, shorter than all
  for (int i = 0; i < 6; ++i) rank.group.all_reduce(at::zeros({1}), "sum").wait();
  for (int i = 0; i < 6; ++i) {
    std::this_thread::sleep_for(milliseconds(700));
    rank.ops[static_cast<std::size_t>(i)]->completed = true;
  }
  EXPECT_TRUE(eventually([&] { return rank.finished() == 6; }));
  EXPECT_NO_THROW(rank.watchdog.check());
}

}  // namespace
}  // namespace colonnade::comm
