// The checker accepts every schedule and finds every defect injected into one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string name_of(const Schedule& s) {
  return fmt::format("{} {} ranks {} chunks {} micro-batches", s.kind, s.ranks, s.chunks, s.microbatches);
}

TEST(ScheduleCheck, EverySizeIsValidWithTheExpectedPeakMemory) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int m = 1; m <= 24; ++m) {
      const ScheduleReport fill = check(gpipe(ranks, m));
      EXPECT_TRUE(fill.faults.empty());
      EXPECT_EQ(fill.peak_in_flight, std::vector<int>(static_cast<std::size_t>(ranks), m));
      const ScheduleReport flat = check(one_f_one_b(ranks, m));
      EXPECT_TRUE(flat.faults.empty());
      for (int r = 0; r < ranks; ++r)
        EXPECT_EQ(flat.peak_in_flight[static_cast<std::size_t>(r)], std::min(ranks - r, m));
      for (int chunks = 1; chunks <= 4; ++chunks) {
        for (int group = ranks; group <= m; ++group) {
          if (m % group != 0 && m % group < ranks) continue;
          const Schedule s = interleaved(ranks, chunks, m, group);
          const ScheduleReport report = check(s);
          ASSERT_TRUE(report.faults.empty()) << name_of(s) << " group " << group << ": " << report.faults[0];
          for (int r = 0; r < ranks; ++r) {
            EXPECT_EQ(report.peak_in_flight[static_cast<std::size_t>(r)],
                      std::min(2 * (ranks - r - 1) + (chunks - 1) * group + 1, chunks * m));
          }
        }
      }
    }
  }
}

/// Expects a valid schedule with live(r) in-flight pairs on rank r, at most pending(r) of them between input
/// and weight gradient.
template <typename Live, typename Pending>
void expect_valid(const Schedule& s, Live live, Pending pending) {
  const ScheduleReport report = check(s);
  ASSERT_TRUE(report.faults.empty()) << name_of(s) << ": " << report.faults[0];
  for (int r = 0; r < s.ranks; ++r) {
    ASSERT_EQ(report.peak_in_flight[static_cast<std::size_t>(r)], live(r)) << name_of(s) << " rank " << r;
    ASSERT_LE(report.peak_pending_wgrads[static_cast<std::size_t>(r)], pending(r))
        << name_of(s) << " rank " << r;
    if (s.microbatches < 2 * s.ranks) continue;
    ASSERT_EQ(report.peak_pending_wgrads[static_cast<std::size_t>(r)], pending(r))
        << name_of(s) << " rank " << r;
  }
}

// All of 1 to 16 stages and 1 to 64 micro-batches. ZB-H1 has on every rank the peak of 1F1B's first rank; V
// schedules have as much (ZB-V) or one chunk more (DualPipe-V), less on the first ranks for few
// micro-batches.
TEST(ScheduleCheck, EveryScheduleIsValidWithTheExpectedPeakMemoryUpTo16x64) {
  for (int p = 1; p <= 16; ++p) {
    for (int m = 1; m <= 64; ++m) {
      const auto none = [](int) { return 0; };
      const auto one = [](int) { return 1; };
      const auto vee = [&](int r, int bound) { return std::min(bound, m + std::min(m, r + 1)); };
      expect_valid(
          zb_h1(p, m), [&](int) { return std::min(p, m); }, [&](int r) { return std::min(r + 1, m); });
      expect_valid(
          zb_v(p, m), [&](int r) { return vee(r, 2 * p); }, [](int r) { return 2 * r + 1; });
      expect_valid(
          dualpipe_v(p, m), [&](int r) { return vee(r, 2 * p + 1); }, [](int r) { return r + 1; });
      const auto flat = [&](int r) { return std::min(p - r, m); };
      expect_valid(one_f_one_b(p, m), flat, none);
      expect_valid(with_delayed_wgrad(one_f_one_b(p, m)), flat, one);
      expect_valid(
          gpipe(p, m), [&](int) { return m; }, none);
      for (int chunks = 2; m % p == 0 && chunks <= 3; ++chunks) {
        const auto looped = [&](int r) {
          return std::min(2 * (p - r - 1) + (chunks - 1) * p + 1, chunks * m);
        };
        expect_valid(interleaved(p, chunks, m, p), looped, none);
        expect_valid(with_delayed_wgrad(interleaved(p, chunks, m, p)), looped, one);
      }
    }
  }
}

// Passes in pairs: 2 micro-batches more than on the next rank, and one more forward pass before the pairs.
TEST(ScheduleCheck, PairedSchedulesAreValidWithTheExpectedPeakMemoryUpTo16x64) {
  const auto none = [](int) { return 0; };
  const auto one = [](int) { return 1; };
  for (int p = 1; p <= 16; ++p) {
    for (int m = 1; m <= 64; ++m) {
      const auto flat = [&](int r) { return std::min(2 * (p - r), m); };
      expect_valid(one_f_one_b(p, m, /*paired=*/true), flat, none);
      expect_valid(with_delayed_wgrad(one_f_one_b(p, m, /*paired=*/true)), flat, one);
      for (int chunks = 2; m % p == 0 && chunks <= 3; ++chunks) {
        const auto looped = [&](int r) {
          return std::min(2 * (p - r - 1) + (chunks - 1) * p + 2, chunks * m);
        };
        expect_valid(interleaved(p, chunks, m, p, /*paired=*/true), looped, none);
        expect_valid(with_delayed_wgrad(interleaved(p, chunks, m, p, /*paired=*/true)), looped, one);
      }
    }
  }
  for (int p = 1; p <= 8; ++p)
    for (int m = p; m <= 24; ++m)
      for (int group = p; group <= m; ++group)
        if (m % group == 0 || m % group >= p) {
          EXPECT_THAT(check(interleaved(p, 2, m, group, /*paired=*/true)).faults, testing::IsEmpty());
          EXPECT_THAT(check(dualpipe_v(p, m, /*overlapped=*/true)).faults, testing::IsEmpty());
        }
}

// Groups of more micro-batches than stages, the last one smaller.
TEST(ScheduleCheck, InterleavedWithLargeGroupsIsValidUpTo16x64) {
  int schedules = 0;
  for (int p = 1; p <= 16; ++p)
    for (int m = p; m <= 64; ++m)
      for (int group = p; group <= m; group += 1 + p / 4) {
        if (m % group != 0 && m % group < p) continue;
        const auto looped = [&](int r) { return std::min(2 * (p - r - 1) + group + 1, 2 * m); };
        const Schedule s = interleaved(p, 2, m, group);
        expect_valid(s, looped, [](int) { return 0; });
        expect_valid(with_delayed_wgrad(s), looped, [](int) { return 1; });
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
          dualpipe_v(2, 3, /*overlapped=*/true),
          one_f_one_b(3, 6, /*paired=*/true),
          interleaved(2, 2, 6, 3, /*paired=*/true),
          with_delayed_wgrad(one_f_one_b(2, 4, /*paired=*/true)),
          with_delayed_wgrad(one_f_one_b(3, 3)),
          with_delayed_wgrad(interleaved(2, 2, 4, 2))};
}

TEST(ScheduleCheck, FindsEveryMissingAction) {
  for (const Schedule& valid : samples()) {
    for (std::size_t r = 0; r < valid.programs.size(); ++r) {
      for (std::size_t i = 0; i < valid.programs[r].size(); ++i) {
        Schedule broken = valid;
        broken.programs[r].erase(broken.programs[r].begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(check(broken).faults.empty())
            << name_of(valid) << " rank " << r << " without action " << i;
      }
    }
  }
}

TEST(ScheduleCheck, FindsEveryActionDoneTwice) {
  for (const Schedule& valid : samples()) {
    for (std::size_t r = 0; r < valid.programs.size(); ++r) {
      for (std::size_t i = 0; i < valid.programs[r].size(); ++i) {
        Schedule broken = valid;
        broken.programs[r].push_back(valid.programs[r][i]);
        EXPECT_FALSE(check(broken).faults.empty())
            << name_of(valid) << " rank " << r << " action " << i << " again";
      }
    }
  }
}

bool is_send_and_wgrad(ActionKind a, ActionKind b) {
  return (a == ActionKind::kSendGradient && b == ActionKind::kBackwardWeight) ||
         (a == ActionKind::kBackwardWeight && b == ActionKind::kSendGradient);
}

// The actions of one (chunk, micro-batch) on one rank form a chain, so no two can be swapped, except the
// weight gradient and the send of the input gradient.
TEST(ScheduleCheck, FindsEverySwapWithinAMicroBatch) {
  int swaps = 0;
  for (const Schedule& valid : samples()) {
    for (std::size_t r = 0; r < valid.programs.size(); ++r) {
      const Program& program = valid.programs[r];
      for (std::size_t i = 0; i < program.size(); ++i) {
        for (std::size_t j = i + 1; j < program.size(); ++j) {
          if (program[i].chunk != program[j].chunk || program[i].microbatch != program[j].microbatch)
            continue;
          if (is_send_and_wgrad(program[i].kind, program[j].kind)) continue;
          Schedule broken = valid;
          std::swap(broken.programs[r][i], broken.programs[r][j]);
          EXPECT_FALSE(check(broken).faults.empty())
              << name_of(valid) << " rank " << r << " swap " << i << ' ' << j;
          ++swaps;
        }
      }
    }
  }
  EXPECT_GT(swaps, 500);
}

TEST(ScheduleCheck, NamesTheFault) {
  Schedule s = one_f_one_b(2, 2);
  std::erase(s.programs[0], Action{ActionKind::kSendActivation, 0, 1});
  const auto faults = check(s).faults;
  EXPECT_THAT(faults, Contains(HasSubstr("rank 1: receive activation of chunk 0, micro-batch 1: deadlocks")));
  EXPECT_THAT(faults, Contains(HasSubstr("rank 0: send activation of chunk 0, micro-batch 1: never done")));
}

TEST(ScheduleCheck, FindsMessagesOutOfOrder) {
  Schedule s = gpipe(2, 2);
  Program& p = s.programs[1];  // R0 F0 R1 F1 ...
  std::swap(p[0], p[2]);
  std::swap(p[1], p[3]);
  EXPECT_THAT(check(s).faults, Contains(HasSubstr("received out of order")));
}

// A channel (two ranks, activations or gradients, one direction) has no tags: both ends must agree on its
// order.
TEST(ScheduleCheck, FindsEverySwapOfTwoMessagesOfAChannel) {
  int swaps = 0;
  for (const Schedule& valid : samples()) {
    for (std::size_t r = 0; r < valid.programs.size(); ++r) {
      const Program& program = valid.programs[r];
      for (std::size_t i = 0; i < program.size(); ++i) {
        for (std::size_t j = i + 1; is_transfer(program[i].kind) && j < program.size(); ++j) {
          if (program[i].kind != program[j].kind) continue;
          Schedule broken = valid;
          std::swap(broken.programs[r][i], broken.programs[r][j]);
          EXPECT_FALSE(check(broken).faults.empty())
              << name_of(valid) << " rank " << r << " swap " << i << ' ' << j;
          ++swaps;
        }
      }
    }
  }
  EXPECT_GT(swaps, 300);
}

TEST(ScheduleCheck, FindsActionsOutsideTheSchedule) {
  for (const Action& invalid :
       {Action{ActionKind::kForward, 1, 0}, Action{ActionKind::kForward, 0, 2},
        Action{ActionKind::kBackward, -1, 0}, Action{ActionKind::kRecvActivation, 0, 0},
        Action{ActionKind::kSendGradient, 0, 0}, Action{static_cast<ActionKind>(9), 0, 0}}) {
    Schedule s = one_f_one_b(2, 2);
    s.programs[0].push_back(invalid);
    EXPECT_FALSE(check(s).faults.empty());
  }
  Schedule s = one_f_one_b(2, 2);
  s.programs.pop_back();
  EXPECT_FALSE(check(s).faults.empty());
}

}  // namespace
}  // namespace colonnade::schedule
