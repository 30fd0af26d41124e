// Order of two functions that take turns, hand-overs by other threads, and failures of either one.
#include "colonnade/base/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "colonnade/base/error.h"

namespace colonnade {
namespace {

using testing::ElementsAre;

/// Events of two functions. A missing synchronization is a data race (tsan).
class TurnsTest : public testing::Test {
 protected:
  /// Records `count` parts of a function, each before a hand-over.
  auto parts(char name, int count) {
    return [this, name, count] {
      for (int i = 0; i < count; ++i) {
        events.push_back(fmt::format("{}{}", name, i));
        turns.hand_over();
      }
      events.push_back(fmt::format("{} ends", name));
    };
  }
  Turns turns;
  std::vector<std::string> events;
};

TEST_F(TurnsTest, AlternateUntilOneEnds) {
  turns.run(parts('a', 2), parts('b', 4));
  EXPECT_THAT(events, ElementsAre("a0", "b0", "a1", "b1", "a ends", "b2", "b3", "b ends"));
  events.clear();
  turns.run(parts('a', 2), parts('b', 0));
  EXPECT_THAT(events, ElementsAre("a0", "b ends", "a1", "a ends"));
}

TEST_F(TurnsTest, HandOverOutsideOfARunDoesNothing) {
  turns.hand_over();
  turns.run(parts('a', 1), parts('b', 1));
  turns.hand_over();
  EXPECT_THAT(events, ElementsAre("a0", "b0", "a ends", "b ends"));
}

// As a thread of the autograd engine, on a GPU.
TEST_F(TurnsTest, AnyThreadOfTheRunningFunctionMayHandOver) {
  const auto first = parts('a', 2);
  turns.run([&] { std::thread(first).join(); }, parts('b', 1));
  EXPECT_THAT(events, ElementsAre("a0", "b0", "a1", "b ends", "a ends"));
}

TEST_F(TurnsTest, TheSameSecondThreadRunsTheFirstFunctionOfEveryRun) {
  std::vector<std::thread::id> first, second;
  for (int i = 0; i < 2; ++i)
    turns.run([&] { first.push_back(std::this_thread::get_id()); },
              [&] { second.push_back(std::this_thread::get_id()); });
  EXPECT_EQ(first[0], first[1]);
  EXPECT_NE(first[0], second[0]);
  EXPECT_EQ(second[0], std::this_thread::get_id());
}

/// Throws after one hand-over.
auto failing(Turns& turns, const char* why) {
  return [&turns, why] {
    turns.hand_over();
    throw DataError(why);
  };
}

std::string failure_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const DataError& error) {
    return error.what();
  }
  return "none";
}

TEST_F(TurnsTest, AFailureEndsTheOtherFunctionAndIsRethrown) {
  EXPECT_EQ(failure_of([&] { turns.run(failing(turns, "first"), parts('b', 9)); }), "first");
  EXPECT_THAT(events, ElementsAre("b0")) << "not b1";
  events.clear();
  EXPECT_EQ(failure_of([&] { turns.run(parts('a', 9), failing(turns, "second")); }), "second");
  EXPECT_THAT(events, ElementsAre("a0", "a1"));
}

TEST_F(TurnsTest, AFailureBeforeTheOtherFunctionBeginsKeepsItFromBeginning) {
  EXPECT_EQ(failure_of([&] { turns.run([] { throw DataError("first"); }, parts('b', 1)); }), "first");
  EXPECT_THAT(events, ElementsAre());
}

// A function that fails because of its partner's failure, and one that catches that and hands over again.
TEST_F(TurnsTest, TheFirstFailureIsReported) {
  const auto swallows = [&] {
    for (int i = 0; i < 3; ++i) {
      try {
        turns.hand_over();
      } catch (const Turns::Abandoned&) {
        events.push_back(fmt::format("abandoned {}", i));
      }
    }
    throw DataError("late");
  };
  EXPECT_EQ(failure_of([&] { turns.run(failing(turns, "early"), swallows); }), "early");
  EXPECT_THAT(events, ElementsAre("abandoned 0", "abandoned 1", "abandoned 2"));
  events.clear();
  turns.run(parts('a', 1), parts('b', 1));
  EXPECT_THAT(events, ElementsAre("a0", "b0", "a ends", "b ends")) << "usable after a failure";
}

TEST_F(TurnsTest, RunsAreNotNested) {
  EXPECT_THROW(turns.run([] {}, [&] { turns.run([] {}, [] {}); }), Error);
  EXPECT_THROW(turns.run([&] { turns.run([] {}, [] {}); }, [&] { turns.hand_over(); }), Error);
}

}  // namespace
}  // namespace colonnade
