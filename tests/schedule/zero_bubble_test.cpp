// Zero-bubble schedules against their paper: orders, memory, and makespans if forward, input gradient and
// weight gradient take equally long.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/config/parallel.h"
#include "colonnade/schedule/program.h"
#include "schedule/published.h"

namespace colonnade::schedule {
namespace {

/// Compute actions of one rank as kind, micro-batch, chunk: "F0.0 B0.0 W0.0"; D is a full backward.
std::string compute(const Program& program) {
  std::string out;
  for (const Action& a : program) {
    if (is_transfer(a.kind)) continue;
    const char letter = a.kind == ActionKind::kForward         ? 'F'
                        : a.kind == ActionKind::kBackward      ? 'D'
                        : a.kind == ActionKind::kBackwardInput ? 'B'
                                                               : 'W';
    out += fmt::format("{}{}{}.{}", out.empty() ? "" : " ", letter, a.microbatch, a.chunk);
  }
  return out;
}

TEST(ZeroBubble, H1FillsTheBubblesOf1F1B) {
  const Schedule s = zb_h1(3, 4);
  EXPECT_EQ(compute(s.programs[0]), "F0.0 F1.0 F2.0 B0.0 W0.0 F3.0 B1.0 W1.0 B2.0 W2.0 B3.0 W3.0");
  EXPECT_EQ(compute(s.programs[1]), "F0.0 F1.0 B0.0 F2.0 B1.0 W0.0 F3.0 B2.0 W1.0 B3.0 W2.0 W3.0");
  EXPECT_EQ(compute(s.programs[2]), "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0 W0.0 F3.0 B3.0 W1.0 W2.0 W3.0");
}

// Qi et al. 2023, table of bubbles: (p - 1)(F + B - W).
TEST(ZeroBubble, H1HasThePublishedMakespan) {
  for (const Size& size : published_sizes()) {
    const Timeline t = simulate(zb_h1(size.ranks, size.microbatches), kEqual);
    expect_published(t.makespan, 3.0 * size.microbatches + (size.ranks - 1) * (1 + 1 - 1), size);
    EXPECT_DOUBLE_EQ(t.makespan, 3.0 * size.microbatches + size.ranks - 1);
  }
}

// Qi et al. 2023, section 6: no bubble on any rank from its first to its last action. The makespan adds the
// p - 1 chunk forwards of the first micro-batch before the last rank starts.
TEST(ZeroBubble, VHasNoBubble) {
  for (const Size& size : published_sizes()) {
    const Timeline t = simulate(zb_v(size.ranks, size.microbatches), kEqual);
    expect_published(t.longest_rank_time, 2 * 3.0 * size.microbatches, size);
    EXPECT_DOUBLE_EQ(t.longest_rank_time, 6.0 * size.microbatches);
    EXPECT_DOUBLE_EQ(t.makespan, 6.0 * size.microbatches + size.ranks - 1);
  }
}

// Input gradients are sent before weight gradients start: the bubble of 1F1B without its (p - 1) W.
TEST(ZeroBubble, DelayedWgradShortens1F1B) {
  for (const Size& size : published_sizes()) {
    const Schedule s = with_delayed_wgrad(one_f_one_b(size.ranks, size.microbatches));
    EXPECT_DOUBLE_EQ(simulate(s, kEqual).makespan, 3.0 * size.microbatches + (size.ranks - 1) * (1 + 1));
  }
  EXPECT_EQ(compute(with_delayed_wgrad(one_f_one_b(2, 2)).programs[0]), "F0.0 F1.0 B0.0 W0.0 B1.0 W1.0");
}

TEST(ZeroBubble, InputGradientsAreSentBeforeWeightGradients) {
  const std::vector<Schedule> schedules = {zb_h1(3, 5), zb_v(3, 5),
                                           with_delayed_wgrad(interleaved(2, 2, 4, 2))};
  int sent = 0;
  for (const Schedule& s : schedules)
    for (const Program& program : s.programs)
      for (std::size_t i = 0; i < program.size(); ++i) {
        if (program[i].kind != ActionKind::kSendGradient) continue;
        EXPECT_EQ(program[i - 1].kind, ActionKind::kBackwardInput);
        ++sent;
      }
  EXPECT_GT(sent, 30);
}

// V placement has no message at the turn, and the first and last stage are on rank 0. There the last stage
// completes all weight gradients before the last backward of the first stage, so that gradients of tied
// weights are complete.
TEST(ZeroBubble, VPlacementHasNoMessageAtTheTurnAndTiedEndsOnOneRank) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int m = 1; m <= 20; ++m)
      for (const Schedule& s : {zb_v(ranks, m), dualpipe_v(ranks, m)}) {
        const Program& turn = s.programs.back();
        const auto sends =
            std::count_if(turn.begin(), turn.end(), [](const Action& a) { return is_send(a.kind); });
        EXPECT_EQ(sends, ranks == 1 ? 0 : 2 * m);  // an activation of chunk 1, a gradient of chunk 0
        const Program& ends = s.programs.front();
        std::size_t last_of_last = 0, first_of_first = 0;
        for (std::size_t i = 0; i < ends.size(); ++i) {
          if (ends[i].chunk == 1 && completes_backward(ends[i].kind)) last_of_last = i;
          if (ends[i].chunk == 0 && computes_input_grad(ends[i].kind)) first_of_first = i;
        }
        EXPECT_LT(last_of_last, first_of_first) << s.kind << ' ' << ranks << ' ' << m;
      }
}

// Weight gradients of a chunk are accumulated in micro-batch order, as in 1F1B.
TEST(ZeroBubble, WeightGradientsAreAccumulatedInTheOrderOf1F1B) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int m = 1; m <= 20; ++m)
      for (const Schedule& s : {zb_h1(ranks, m), zb_v(ranks, m), dualpipe_v(ranks, m)})
        for (const Program& program : s.programs) {
          std::vector<int> next(static_cast<std::size_t>(s.chunks), 0);
          for (const Action& a : program)
            if (completes_backward(a.kind)) {
              EXPECT_EQ(a.microbatch, next[static_cast<std::size_t>(a.chunk)]++) << s.kind;
            }
        }
}

TEST(ZeroBubble, SettingsSelectTheSchedule) {
  config::Parallel p;
  p.pipeline_model_parallel_size = 2;
  p.pipeline_schedule = "zb-h1";
  EXPECT_EQ(make_schedule(p, 1, 4).programs, zb_h1(2, 4).programs);
  EXPECT_THROW(make_schedule(p, 2, 4), ConfigError);
  p.pipeline_schedule = "zb-v";
  EXPECT_EQ(make_schedule(p, 2, 4).programs, zb_v(2, 4).programs);
  EXPECT_THROW(make_schedule(p, 1, 4), ConfigError);
  p.pipeline_schedule = "dualpipe-v";
  EXPECT_EQ(make_schedule(p, 2, 4).programs, dualpipe_v(2, 4).programs);
  p.pipeline_schedule = "auto";
  p.delay_wgrad_compute = true;
  EXPECT_EQ(make_schedule(p, 1, 4).programs, with_delayed_wgrad(one_f_one_b(2, 4)).programs);
  EXPECT_EQ(make_schedule(p, 2, 4).kind, "interleaved with delayed weight gradients");
  EXPECT_THROW(zb_h1(2, 0), ConfigError);
  EXPECT_THROW(zb_v(0, 2), ConfigError);
}

}  // namespace
}  // namespace colonnade::schedule
