// Action orders against Megatron's tables, and makespans against published formulas.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/config/parallel.h"
#include "colonnade/schedule/program.h"

namespace colonnade::schedule {
namespace {

/// Compute actions of one rank as kind, micro-batch, chunk: "F0.0 B0.0".
std::string compute(const Program& program) {
  std::string out;
  for (const Action& a : program) {
    if (a.kind != ActionKind::kForward && a.kind != ActionKind::kBackward) continue;
    out += fmt::format("{}{}{}.{}", out.empty() ? "" : " ", a.kind == ActionKind::kForward ? 'F' : 'B',
                       a.microbatch, a.chunk);
  }
  return out;
}

std::string table(int chunks, int microbatches, int group) {
  std::string out;
  for (const ChunkStep& s : interleaved_order(chunks, microbatches, group)) {
    out += fmt::format("{}{}{}", out.empty() ? "" : " ", s.microbatch, s.chunk);
  }
  return out;
}

TEST(Schedules, InterleavedOrderIsMegatrons) {
  EXPECT_EQ(table(2, 5, 3), "00 10 20 01 11 21 30 40 31 41");
  EXPECT_EQ(table(2, 4, 2), "00 10 01 11 20 30 21 31");
}

TEST(Schedules, OneFOneBFillsAlternatesDrains) {
  const Schedule s = one_f_one_b(3, 4);
  EXPECT_EQ(compute(s.programs[0]), "F0.0 F1.0 F2.0 B0.0 F3.0 B1.0 B2.0 B3.0");
  EXPECT_EQ(compute(s.programs[1]), "F0.0 F1.0 B0.0 F2.0 B1.0 F3.0 B2.0 B3.0");
  EXPECT_EQ(compute(s.programs[2]), "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0 F3.0 B3.0");
}

TEST(Schedules, InterleavedWarmsUpAsMegatronDoes) {
  const Schedule s = interleaved(2, 2, 4, 2);  // warm-up 4 on rank 0, 2 on rank 1
  EXPECT_EQ(compute(s.programs[0]),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(compute(s.programs[1]),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

/// The pairs of a program, as in compute().
std::string pairs(const Schedule& s, int rank) {
  std::string out;
  const Program& program = s.programs[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < program.size(); ++i)
    if (starts_pair(s, program, i))
      out += fmt::format("{}{}", out.empty() ? "" : ", ", compute({program[i], program[i + 1]}));
  return out;
}

// Megatron's combined 1F1B: one rank, and virtual stages with one more forward pass before the first pair.
TEST(Schedules, PairsAreMegatrons) {
  EXPECT_EQ(compute(one_f_one_b(1, 4, /*paired=*/true).programs[0]),
            "F0.0 F1.0 B0.0 F2.0 B1.0 F3.0 B2.0 B3.0");
  EXPECT_EQ(pairs(one_f_one_b(1, 4, /*paired=*/true), 0), "F1.0 B0.0, F2.0 B1.0, F3.0 B2.0");
  const Schedule s = interleaved(2, 2, 4, 2, /*paired=*/true);  // warm-up 5 on rank 0, 3 on rank 1
  EXPECT_EQ(compute(s.programs[1]),
            "F0.0 F1.0 F0.1 F1.1 B0.1 F2.0 B1.1 F3.0 B0.0 F2.1 B1.0 F3.1 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(pairs(s, 0), "F3.0 B0.1, F2.1 B1.1, F3.1 B0.0");
  EXPECT_EQ(pairs(s, 1), "F1.1 B0.1, F2.0 B1.1, F3.0 B0.0, F2.1 B1.0, F3.1 B2.1");
}

// Both results of a pair are sent after it; deferred weight gradients follow.
TEST(Schedules, TransfersSurroundPairs) {
  const Schedule s = one_f_one_b(3, 5, /*paired=*/true);
  const Program pair{{ActionKind::kRecvActivation, 0, 3}, {ActionKind::kRecvGradient, 0, 0},
                     {ActionKind::kForward, 0, 3},        {ActionKind::kBackward, 0, 0},
                     {ActionKind::kSendActivation, 0, 3}, {ActionKind::kSendGradient, 0, 0}};
  const Program& program = s.programs[1];
  EXPECT_NE(std::search(program.begin(), program.end(), pair.begin(), pair.end()), program.end());
  Program split = pair;
  split[3].kind = ActionKind::kBackwardInput;
  split.push_back({ActionKind::kBackwardWeight, 0, 0});
  const Schedule delayed = with_delayed_wgrad(s);
  const Program& later = delayed.programs[1];
  EXPECT_NE(std::search(later.begin(), later.end(), split.begin(), split.end()), later.end());
  EXPECT_EQ(pairs(s, 1), "F3.0 B0.0, F4.0 B1.0");
}

TEST(Schedules, PassesOfOneMicroBatchAreNoPair) {
  for (const int m : {1, 2, 3}) {
    const Schedule s = one_f_one_b(4, m, /*paired=*/true);
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(pairs(s, rank), "") << m << " micro-batches, rank " << rank;
  }
  EXPECT_EQ(pairs(one_f_one_b(1, 1, /*paired=*/true), 0), "");
  EXPECT_EQ(pairs(one_f_one_b(2, 4), 1), "") << "not a schedule of pairs";
}

TEST(Schedules, TransfersSurroundTheirComputeActions) {
  const Schedule s = gpipe(2, 1);
  EXPECT_EQ(s.programs[0], (Program{{ActionKind::kForward},
                                    {ActionKind::kSendActivation},
                                    {ActionKind::kRecvGradient},
                                    {ActionKind::kBackward}}));
  EXPECT_EQ(s.programs[1], (Program{{ActionKind::kRecvActivation},
                                    {ActionKind::kForward},
                                    {ActionKind::kBackward},
                                    {ActionKind::kSendGradient}}));
}

TEST(Schedules, OneRankNeedsNoTransfer) {
  const Schedule s = interleaved(1, 3, 4, 2);
  EXPECT_EQ(s.programs[0].size(), 2U * 3 * 4);
  for (const Action& a : s.programs[0]) {
    EXPECT_TRUE(a.kind == ActionKind::kForward || a.kind == ActionKind::kBackward);
  }
}

// Narayanan et al. 2021: the bubble is (p - 1)/m of the ideal time, with v virtual stages (p - 1)/(m v).
TEST(Schedules, MakespansMatchThePublishedFormulas) {
  for (int p = 1; p <= 16; ++p) {
    for (int m = p; m <= 64; ++m) {
      const double forward = 1.0, backward = 2.0;
      const Timeline flat = simulate(one_f_one_b(p, m), {forward, backward, 0});
      EXPECT_DOUBLE_EQ(flat.makespan, (m + p - 1) * (forward + backward));
      EXPECT_NEAR(flat.bubble_fraction, (p - 1.0) / (m + p - 1), 1e-12);
      EXPECT_DOUBLE_EQ(simulate(gpipe(p, m), {forward, backward, 0}).makespan, flat.makespan);
      EXPECT_DOUBLE_EQ(simulate(one_f_one_b(p, m, /*paired=*/true), {forward, backward, 0}).makespan,
                       flat.makespan);
      for (int v = 2; v <= 4 && m % p == 0; ++v) {
        const Timeline t = simulate(interleaved(p, v, m, p), {forward, backward, 0});
        EXPECT_DOUBLE_EQ(t.makespan, (m * v + p - 1) * (forward + backward)) << p << ' ' << v << ' ' << m;
        EXPECT_NEAR(t.bubble_fraction, (p - 1.0) / (m * v + p - 1), 1e-12);
        EXPECT_DOUBLE_EQ(simulate(interleaved(p, v, m, p, /*paired=*/true), {forward, backward, 0}).makespan,
                         t.makespan);
      }
    }
  }
}

TEST(Schedules, TransfersDelayTheNextRank) {
  const Timeline t = simulate(one_f_one_b(2, 1), {1, 2, 0.5});
  EXPECT_DOUBLE_EQ(t.makespan, 1 + 0.5 + 1 + 2 + 0.5 + 2);
  ASSERT_EQ(t.spans.size(), 4U);
  EXPECT_EQ(t.spans[2].rank, 1);
  EXPECT_DOUBLE_EQ(t.spans[2].begin, 1.5);
}

TEST(Schedules, SimulatingADeadlockThrows) {
  Schedule s = one_f_one_b(2, 2);
  s.programs[1].pop_back();
  EXPECT_THROW(simulate(s, {}), Error);
}

TEST(Schedules, RejectsInvalidSizes) {
  EXPECT_THROW(gpipe(0, 1), ConfigError);
  EXPECT_THROW(one_f_one_b(2, 0), ConfigError);
  EXPECT_THROW(interleaved(4, 2, 3, 4), ConfigError);   // group above micro-batches
  EXPECT_THROW(interleaved(4, 2, 8, 3), ConfigError);   // group below ranks
  EXPECT_THROW(interleaved(4, 2, 10, 4), ConfigError);  // 2 left for 4 ranks
}

TEST(Schedules, SettingsSelectTheSchedule) {
  config::Parallel p;
  p.pipeline_model_parallel_size = 2;
  EXPECT_EQ(make_schedule(p, 1, 4).kind, "1f1b");
  EXPECT_EQ(make_schedule(p, 2, 4).kind, "interleaved");
  p.microbatch_group_size_per_virtual_pipeline_stage = 4;
  EXPECT_EQ(make_schedule(p, 2, 4).programs, interleaved(2, 2, 4, 4).programs);
  p.overlap_moe_expert_parallel_comm = true;
  EXPECT_EQ(make_schedule(p, 1, 4).programs, one_f_one_b(2, 4, /*paired=*/true).programs);
  EXPECT_EQ(make_schedule(p, 2, 4).programs, interleaved(2, 2, 4, 4, /*paired=*/true).programs);
  EXPECT_TRUE(make_schedule(p, 2, 4).pairs_passes);
  p.pipeline_schedule = "dualpipe-v";
  EXPECT_EQ(make_schedule(p, 2, 4).programs, dualpipe_v(2, 4, /*overlapped=*/true).programs);
  EXPECT_TRUE(make_schedule(p, 2, 4).pairs_passes);
  p.overlap_moe_expert_parallel_comm = false;
  EXPECT_FALSE(make_schedule(p, 2, 4).pairs_passes);
  p.pipeline_schedule = "gpipe";
  EXPECT_EQ(make_schedule(p, 1, 4).kind, "gpipe");
  EXPECT_THROW(make_schedule(p, 2, 4), ConfigError);
  p.pipeline_schedule = "zigzag";
  EXPECT_THROW(make_schedule(p, 1, 4), ConfigError);
}

}  // namespace
}  // namespace colonnade::schedule
