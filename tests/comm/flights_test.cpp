// Operations that go on behind the host: when their tickets end, what is shown, who gives up.
#include "colonnade/comm/flights.h"

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
bool soon(const Condition& condition) {
  for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(5));
  return condition();
}

/// What a device would do: an operation is over, or fails, when the test says so.
struct Device {
  std::atomic<bool> over{false};
  std::atomic<bool> failed{false};
  std::atomic<int> asked{0};
};

/// Returns when the watching thread has seen what the test did before.
void wait_until_looked_at(const Device& device) {
  const int seen = device.asked;
  EXPECT_TRUE(soon([&] { return device.asked >= seen + 3; }));
}

/// As nccl: wait() returns at once.
class Asynchronous final : public test::PassingBackend {
 public:
  Asynchronous(Flights& flights, std::vector<std::shared_ptr<Device>>& devices)
      : PassingBackend(null_factory(nullptr)->make({0, 1}, 0, "test")),
        flights_(flights),
        devices_(devices) {}
  Work all_reduce(at::Tensor, Reduce, const Call& call) override {
    const auto device = devices_.emplace_back(std::make_shared<Device>());
    const auto flight = flights_.add(call, [device] {
      ++device->asked;
      if (device->failed) throw std::runtime_error("the peer hung up");
      return device->over.load();
    });
    return Work([this, flight] {
      flights_.check();
      flight->awaited = true;
    });
  }

 private:
  Flights& flights_;
  std::vector<std::shared_ptr<Device>>& devices_;
};

/// One rank's group on a page of its own.
struct Rank {
  explicit Rank(milliseconds timeout, milliseconds grace = seconds(60))
      : flights(
            timeout, [this] { gave_up = true; }, grace) {
    const ProgressScope scope(page);
    group = Group(std::make_shared<Asynchronous>(flights, devices), "dp");
  }
  [[nodiscard]] std::uint64_t finished() const { return page.read().groups.at(0).finished; }
  [[nodiscard]] std::string waits_in() const {
    const auto now = page.read();
    return now.waiting ? now.waiting->what : "";
  }

  Progress page;
  std::atomic<bool> gave_up{false};
  std::vector<std::shared_ptr<Device>> devices;
  Flights flights;
  Group group;
};

TEST(Flights, ATicketEndsWhenTheDeviceIsDoneAndNotWhenTheHostHasWaited) {
  Rank rank(seconds(60));
  rank.group.all_reduce(at::zeros({1}), "first").wait();
  rank.group.all_reduce(at::zeros({1}), "second").wait();
  wait_until_looked_at(*rank.devices[0]);
  EXPECT_EQ(rank.finished(), 0U);
  EXPECT_NE(rank.waits_in(), "") << "the launcher must see that this rank stands in a collective";
  rank.devices[1]->over = true;
  EXPECT_TRUE(soon([&] { return rank.finished() == 1; }));
  EXPECT_TRUE(soon([&] { return rank.waits_in() == "first"; })) << "the oldest that is under way";
  rank.devices[0]->over = true;
  EXPECT_TRUE(soon([&] { return rank.finished() == 2 && rank.waits_in().empty(); }));
}

TEST(Flights, WhatTheHostHasNotWaitedForIsNotShown) {
  Rank rank(seconds(60));
  Work work = rank.group.all_reduce(at::zeros({1}), "bucket");
  wait_until_looked_at(*rank.devices[0]);
  EXPECT_EQ(rank.waits_in(), "");
  rank.devices[0]->over = true;
  work.wait();
  EXPECT_TRUE(soon([&] { return rank.finished() == 1; }));
}

TEST(Flights, AnOperationThatFailsLosesTheGroup) {
  Rank rank(seconds(60));
  rank.group.all_reduce(at::zeros({1}), "sum").wait();
  rank.devices[0]->failed = true;
  ASSERT_TRUE(soon([&] { return !rank.page.read().note.empty(); }));
  try {
    rank.group.all_reduce(at::zeros({1}), "next").wait();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("all_reduce \"next\""));
    EXPECT_THAT(error.what(), HasSubstr("all_reduce \"sum\" on dp: the peer hung up"));
  }
  EXPECT_FALSE(rank.gave_up);
  EXPECT_EQ(rank.waits_in(), "sum") << "what it waited in remains for the launcher to read";
}

TEST(Flights, AfterTheTimeOutAHostThatDoesNotEndIsEnded) {
  Rank rank(milliseconds(100), milliseconds(50));
  Work work = rank.group.all_reduce(at::zeros({1}), "sum");
  EXPECT_TRUE(soon([&] { return rank.gave_up.load(); }));
  EXPECT_THAT(rank.page.read().note, HasSubstr("must be over within 0.1 s"));
  EXPECT_THROW(rank.flights.check(), CommError);
  EXPECT_THROW(work.wait(), CommError);
}

TEST(Flights, TheTimeOutCountsFromTheEndOfTheOneBefore) {
  Rank rank(milliseconds(3500), milliseconds(50));  // more than one flight, less than all
  for (int i = 0; i < 6; ++i) rank.group.all_reduce(at::zeros({1}), "sum").wait();
  for (int i = 0; i < 6; ++i) {
    std::this_thread::sleep_for(milliseconds(700));
    rank.devices[static_cast<std::size_t>(i)]->over = true;
  }
  EXPECT_TRUE(soon([&] { return rank.finished() == 6; }));
  EXPECT_NO_THROW(rank.flights.check());
}

}  // namespace
}  // namespace colonnade::comm
