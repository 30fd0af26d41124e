// The checker accepts every schedule of ours and finds every damage done to one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/plan/program.h"

namespace colonnade::plan {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string where(const Schedule& s) {
  return fmt::format("{} {} ranks {} chunks {} micro-batches", s.kind, s.ranks, s.chunks, s.microbatches);
}

TEST(ScheduleCheck, EveryLegalSizeIsSoundWithinItsMemory) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int m = 1; m <= 24; ++m) {
      const ScheduleReport fill = check(gpipe(ranks, m));
      EXPECT_TRUE(fill.faults.empty());
      EXPECT_EQ(fill.peak_live, std::vector<int>(static_cast<std::size_t>(ranks), m));
      const ScheduleReport flat = check(one_f_one_b(ranks, m));
      EXPECT_TRUE(flat.faults.empty());
      for (int r = 0; r < ranks; ++r)
        EXPECT_EQ(flat.peak_live[static_cast<std::size_t>(r)], std::min(ranks - r, m));
      for (int chunks = 1; chunks <= 4; ++chunks) {
        for (int group = ranks; group <= m; ++group) {
          if (m % group != 0 && m % group < ranks) continue;
          const Schedule s = interleaved(ranks, chunks, m, group);
          const ScheduleReport report = check(s);
          ASSERT_TRUE(report.faults.empty()) << where(s) << " group " << group << ": " << report.faults[0];
          for (int r = 0; r < ranks; ++r) {
            EXPECT_EQ(report.peak_live[static_cast<std::size_t>(r)],
                      std::min(2 * (ranks - r - 1) + (chunks - 1) * group + 1, chunks * m));
          }
        }
      }
    }
  }
}

std::vector<Schedule> samples() {
  return {gpipe(3, 3),
          one_f_one_b(4, 5),
          one_f_one_b(1, 2),
          interleaved(2, 2, 5, 3),
          interleaved(3, 3, 6, 3),
          interleaved(1, 2, 3, 1)};
}

TEST(ScheduleCheck, FindsEveryMissingAction) {
  for (const Schedule& whole : samples()) {
    for (std::size_t r = 0; r < whole.programs.size(); ++r) {
      for (std::size_t i = 0; i < whole.programs[r].size(); ++i) {
        Schedule damaged = whole;
        damaged.programs[r].erase(damaged.programs[r].begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(check(damaged).faults.empty())
            << where(whole) << " rank " << r << " without action " << i;
      }
    }
  }
}

TEST(ScheduleCheck, FindsEveryActionDoneTwice) {
  for (const Schedule& whole : samples()) {
    for (std::size_t r = 0; r < whole.programs.size(); ++r) {
      for (std::size_t i = 0; i < whole.programs[r].size(); ++i) {
        Schedule damaged = whole;
        damaged.programs[r].push_back(whole.programs[r][i]);
        EXPECT_FALSE(check(damaged).faults.empty())
            << where(whole) << " rank " << r << " action " << i << " again";
      }
    }
  }
}

// The actions of one (chunk, micro-batch) on one rank form a chain, so no two may change places.
TEST(ScheduleCheck, FindsEverySwapWithinAMicroBatch) {
  int swaps = 0;
  for (const Schedule& whole : samples()) {
    for (std::size_t r = 0; r < whole.programs.size(); ++r) {
      const Program& program = whole.programs[r];
      for (std::size_t i = 0; i < program.size(); ++i) {
        for (std::size_t j = i + 1; j < program.size(); ++j) {
          if (program[i].chunk != program[j].chunk || program[i].microbatch != program[j].microbatch)
            continue;
          Schedule damaged = whole;
          std::swap(damaged.programs[r][i], damaged.programs[r][j]);
          EXPECT_FALSE(check(damaged).faults.empty())
              << where(whole) << " rank " << r << " swap " << i << ' ' << j;
          ++swaps;
        }
      }
    }
  }
  EXPECT_GT(swaps, 500);
}

TEST(ScheduleCheck, NamesTheFault) {
  Schedule s = one_f_one_b(2, 2);
  std::erase(s.programs[0], Action{Do::kSendActivation, 0, 1});
  const auto faults = check(s).faults;
  EXPECT_THAT(faults,
              Contains(HasSubstr("rank 1: receive activation of chunk 0, micro-batch 1: waits forever")));
  EXPECT_THAT(faults, Contains(HasSubstr("rank 0: send activation of chunk 0, micro-batch 1: never done")));
}

TEST(ScheduleCheck, FindsOvertaking) {
  Schedule s = gpipe(2, 2);
  Program& p = s.programs[1];  // R0 F0 R1 F1 ...
  std::swap(p[0], p[2]);
  std::swap(p[1], p[3]);
  EXPECT_THAT(check(s).faults, Contains(HasSubstr("received in another order than sent")));
}

// A lane (two ranks, activations or gradients, one direction) has no tags: both ends must agree on its order.
TEST(ScheduleCheck, FindsEverySwapOfTwoMessagesOfALane) {
  int swaps = 0;
  for (const Schedule& whole : samples()) {
    for (std::size_t r = 0; r < whole.programs.size(); ++r) {
      const Program& program = whole.programs[r];
      for (std::size_t i = 0; i < program.size(); ++i) {
        const bool transfer = program[i].act != Do::kForward && program[i].act != Do::kBackward;
        for (std::size_t j = i + 1; transfer && j < program.size(); ++j) {
          if (program[i].act != program[j].act) continue;
          Schedule damaged = whole;
          std::swap(damaged.programs[r][i], damaged.programs[r][j]);
          EXPECT_FALSE(check(damaged).faults.empty())
              << where(whole) << " rank " << r << " swap " << i << ' ' << j;
          ++swaps;
        }
      }
    }
  }
  EXPECT_GT(swaps, 300);
}

TEST(ScheduleCheck, FindsActionsOutsideTheSchedule) {
  for (const Action& wild : {Action{Do::kForward, 1, 0}, Action{Do::kForward, 0, 2},
                             Action{Do::kBackward, -1, 0}, Action{Do::kRecvActivation, 0, 0},
                             Action{Do::kSendGradient, 0, 0}, Action{static_cast<Do>(9), 0, 0}}) {
    Schedule s = one_f_one_b(2, 2);
    s.programs[0].push_back(wild);
    EXPECT_FALSE(check(s).faults.empty());
  }
  Schedule s = one_f_one_b(2, 2);
  s.programs.pop_back();
  EXPECT_FALSE(check(s).faults.empty());
}

}  // namespace
}  // namespace colonnade::plan
