// The checker accepts every schedule of ours and finds every damage done to one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {
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

/// Sound, and on rank r at most live(r) pairs between forward and the end of backward, waiting(r) of them
/// between input and weight gradient.
template <typename Live, typename Waiting>
void expect_sound(const Schedule& s, Live live, Waiting waiting) {
  const ScheduleReport report = check(s);
  ASSERT_TRUE(report.faults.empty()) << where(s) << ": " << report.faults[0];
  for (int r = 0; r < s.ranks; ++r) {
    ASSERT_EQ(report.peak_live[static_cast<std::size_t>(r)], live(r)) << where(s) << " rank " << r;
    ASSERT_LE(report.peak_waiting[static_cast<std::size_t>(r)], waiting(r)) << where(s) << " rank " << r;
    if (s.microbatches < 2 * s.ranks) continue;
    ASSERT_EQ(report.peak_waiting[static_cast<std::size_t>(r)], waiting(r)) << where(s) << " rank " << r;
  }
}

// Stages 1 to 16 and micro-batches 1 to 64, all of them. ZB-H1 holds on every rank what 1F1B's first one
// holds; a V fills from its turn, to as much (ZB-V) or one chunk more (DualPipe-V).
TEST(ScheduleCheck, EveryScheduleIsSoundWithinItsMemoryUpTo16x64) {
  for (int p = 1; p <= 16; ++p) {
    for (int m = 1; m <= 64; ++m) {
      const auto none = [](int) { return 0; };
      const auto one = [](int) { return 1; };
      const auto vee = [&](int r, int bound) { return std::min(bound, m + std::min(m, r + 1)); };
      expect_sound(
          zb_h1(p, m), [&](int) { return std::min(p, m); }, [&](int r) { return std::min(r + 1, m); });
      expect_sound(
          zb_v(p, m), [&](int r) { return vee(r, 2 * p); }, [](int r) { return 2 * r + 1; });
      expect_sound(
          dualpipe_v(p, m), [&](int r) { return vee(r, 2 * p + 1); }, [](int r) { return r + 1; });
      const auto flat = [&](int r) { return std::min(p - r, m); };
      expect_sound(one_f_one_b(p, m), flat, none);
      expect_sound(with_delayed_weights(one_f_one_b(p, m)), flat, one);
      expect_sound(
          gpipe(p, m), [&](int) { return m; }, none);
      for (int chunks = 2; m % p == 0 && chunks <= 3; ++chunks) {
        const auto looped = [&](int r) {
          return std::min(2 * (p - r - 1) + (chunks - 1) * p + 1, chunks * m);
        };
        expect_sound(interleaved(p, chunks, m, p), looped, none);
        expect_sound(with_delayed_weights(interleaved(p, chunks, m, p)), looped, one);
      }
    }
  }
}

// Groups of more micro-batches than stages, the last of them smaller: a chunk holds its group longer.
TEST(ScheduleCheck, InterleavedOfWideGroupsIsSoundUpTo16x64) {
  int schedules = 0;
  for (int p = 1; p <= 16; ++p)
    for (int m = p; m <= 64; ++m)
      for (int group = p; group <= m; group += 1 + p / 4) {
        if (m % group != 0 && m % group < p) continue;
        const auto looped = [&](int r) { return std::min(2 * (p - r - 1) + group + 1, 2 * m); };
        const Schedule s = interleaved(p, 2, m, group);
        expect_sound(s, looped, [](int) { return 0; });
        expect_sound(with_delayed_weights(s), looped, [](int) { return 1; });
        ++schedules;
      }
  EXPECT_GT(schedules, 4'000);
}

std::vector<Schedule> samples() {
  return {gpipe(3, 3),
          one_f_one_b(4, 5),
          one_f_one_b(1, 2),
          interleaved(2, 2, 5, 3),
          interleaved(3, 3, 6, 3),
          interleaved(1, 2, 3, 1),
          zb_h1(3, 4),
          zb_v(3, 6),
          zb_v(1, 2),
          dualpipe_v(3, 6),
          dualpipe_v(2, 3, /*joined=*/true),
          with_delayed_weights(one_f_one_b(3, 3)),
          with_delayed_weights(interleaved(2, 2, 4, 2))};
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

bool sends_and_weights(Do a, Do b) {
  return (a == Do::kSendGradient && b == Do::kBackwardWeight) ||
         (a == Do::kBackwardWeight && b == Do::kSendGradient);
}

// The actions of one (chunk, micro-batch) on one rank form a chain, so no two may change places; only its
// weight gradients need not wait for the message of the input's.
TEST(ScheduleCheck, FindsEverySwapWithinAMicroBatch) {
  int swaps = 0;
  for (const Schedule& whole : samples()) {
    for (std::size_t r = 0; r < whole.programs.size(); ++r) {
      const Program& program = whole.programs[r];
      for (std::size_t i = 0; i < program.size(); ++i) {
        for (std::size_t j = i + 1; j < program.size(); ++j) {
          if (program[i].chunk != program[j].chunk || program[i].microbatch != program[j].microbatch)
            continue;
          if (sends_and_weights(program[i].act, program[j].act)) continue;
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
        for (std::size_t j = i + 1; is_transfer(program[i].act) && j < program.size(); ++j) {
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
}  // namespace colonnade::schedule
