// Zero-bubble schedules against what their papers publish: orders, memory, and times when forward, input and
// weight gradients take equally long.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/config/parallel.h"
#include "colonnade/schedule/program.h"

namespace colonnade::schedule {
namespace {

constexpr ActionCosts kEqual{.forward = 1, .backward = 2, .transfer = 0, .weight = 1};
constexpr double kBound = 0.02;  // of the published makespan

/// "F0.0 B0.0 W0.0": what takes time on one rank as act, micro-batch, chunk; D is a whole backward.
std::string compute(const Program& program) {
  std::string out;
  for (const Action& a : program) {
    if (is_transfer(a.act)) continue;
    const char letter = a.act == Do::kForward         ? 'F'
                        : a.act == Do::kBackward      ? 'D'
                        : a.act == Do::kBackwardInput ? 'B'
                                                      : 'W';
    out += fmt::format("{}{}{}.{}", out.empty() ? "" : " ", letter, a.microbatch, a.chunk);
  }
  return out;
}

struct Size {
  int ranks, microbatches;
};
/// At least twice as many micro-batches as ranks.
std::vector<Size> published_sizes() {
  std::vector<Size> sizes;
  for (int p = 1; p <= 16; ++p)
    for (int m = 2 * p; m <= 64; ++m) sizes.push_back({p, m});
  return sizes;
}

void expect_published(double got, double published, const Size& size) {
  EXPECT_NEAR(got, published, kBound * published) << size.ranks << " ranks " << size.microbatches;
}

TEST(ZeroBubble, H1FillsTheGapsOf1F1B) {
  const Schedule s = zb_h1(3, 4);
  EXPECT_EQ(compute(s.programs[0]), "F0.0 F1.0 F2.0 B0.0 W0.0 F3.0 B1.0 W1.0 B2.0 W2.0 B3.0 W3.0");
  EXPECT_EQ(compute(s.programs[1]), "F0.0 F1.0 B0.0 F2.0 B1.0 W0.0 F3.0 B2.0 W1.0 B3.0 W2.0 W3.0");
  EXPECT_EQ(compute(s.programs[2]), "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0 W0.0 F3.0 B3.0 W1.0 W2.0 W3.0");
}

// Qi et al. 2023, table of bubbles: (p - 1)(F + B - W).
TEST(ZeroBubble, H1TakesThePublishedTime) {
  for (const Size& size : published_sizes()) {
    const Timeline t = simulate(zb_h1(size.ranks, size.microbatches), kEqual);
    expect_published(t.makespan, 3.0 * size.microbatches + (size.ranks - 1) * (1 + 1 - 1), size);
    EXPECT_DOUBLE_EQ(t.makespan, 3.0 * size.microbatches + size.ranks - 1);
  }
}

// Qi et al. 2023, section 6: no bubble on any rank, counted from its first to its last action. Until the last
// rank ends, the way of the first micro-batch to it remains: p - 1 forwards of a chunk.
TEST(ZeroBubble, VHasNoBubble) {
  for (const Size& size : published_sizes()) {
    const Timeline t = simulate(zb_v(size.ranks, size.microbatches), kEqual);
    expect_published(t.longest_rank, 2 * 3.0 * size.microbatches, size);
    EXPECT_DOUBLE_EQ(t.longest_rank, 6.0 * size.microbatches);
    EXPECT_DOUBLE_EQ(t.makespan, 6.0 * size.microbatches + size.ranks - 1);
  }
}

// DeepSeek's table: (PP/2 - 1)(F&B + B - 3W) with PP stages, B a whole backward, F&B one overlapped pair.
TEST(ZeroBubble, DualPipeVTakesThePublishedTime) {
  for (const Size& size : published_sizes()) {
    const double stages = 2.0 * size.ranks, whole = kEqual.backward, pair = kEqual.forward + whole;
    const double published = 6.0 * size.microbatches + (stages / 2 - 1) * (pair + whole - 3 * kEqual.weight);
    const Timeline joined = simulate(dualpipe_v(size.ranks, size.microbatches, /*joined=*/true), kEqual);
    expect_published(joined.makespan, published, size);
    EXPECT_DOUBLE_EQ(joined.makespan, published);
    // A pair that runs one after the other hands the first part on sooner: half of the bubble is left.
    const Timeline in_turn = simulate(dualpipe_v(size.ranks, size.microbatches), kEqual);
    EXPECT_DOUBLE_EQ(in_turn.makespan, 6.0 * size.microbatches + size.ranks - 1);
  }
}

// A gradient that is sent before the weights are begun: the bubble of 1F1B without its (p - 1) W.
TEST(ZeroBubble, DelayedWeightsShorten1F1B) {
  for (const Size& size : published_sizes()) {
    const Schedule s = with_delayed_weights(one_f_one_b(size.ranks, size.microbatches));
    EXPECT_DOUBLE_EQ(simulate(s, kEqual).makespan, 3.0 * size.microbatches + (size.ranks - 1) * (1 + 1));
  }
  EXPECT_EQ(compute(with_delayed_weights(one_f_one_b(2, 2)).programs[0]), "F0.0 F1.0 B0.0 W0.0 B1.0 W1.0");
}

TEST(ZeroBubble, GradientsAreSentBeforeTheWeights) {
  const std::vector<Schedule> schedules = {zb_h1(3, 5), zb_v(3, 5),
                                           with_delayed_weights(interleaved(2, 2, 4, 2))};
  int sent = 0;
  for (const Schedule& s : schedules)
    for (const Program& program : s.programs)
      for (std::size_t i = 0; i < program.size(); ++i) {
        if (program[i].act != Do::kSendGradient) continue;
        EXPECT_EQ(program[i - 1].act, Do::kBackwardInput);
        ++sent;
      }
  EXPECT_GT(sent, 30);
}

// Ranks of a V hold its first and last stage together: no message at the turn, and on rank 0 the last stage
// has all of its gradients before the first one begins its last backward, so that weights that both use are
// whole.
TEST(ZeroBubble, AVKeepsItsTurnAndItsEndsInOnePlace) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int m = 1; m <= 20; ++m)
      for (const Schedule& s : {zb_v(ranks, m), dualpipe_v(ranks, m)}) {
        const Program& turn = s.programs.back();
        const auto sends =
            std::count_if(turn.begin(), turn.end(), [](const Action& a) { return is_send(a.act); });
        EXPECT_EQ(sends, ranks == 1 ? 0 : 2 * m);  // an activation of chunk 1, a gradient of chunk 0
        const Program& ends = s.programs.front();
        std::size_t last_of_last = 0, first_of_first = 0;
        for (std::size_t i = 0; i < ends.size(); ++i) {
          if (ends[i].chunk == 1 && ends_backward(ends[i].act)) last_of_last = i;
          if (ends[i].chunk == 0 && gives_input_gradient(ends[i].act)) first_of_first = i;
        }
        EXPECT_LT(last_of_last, first_of_first) << s.kind << ' ' << ranks << ' ' << m;
      }
}

// Weight gradients of a chunk are added in the order of micro-batches, as 1F1B adds them.
TEST(ZeroBubble, WeightsAreSummedInTheOrderOf1F1B) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int m = 1; m <= 20; ++m)
      for (const Schedule& s : {zb_h1(ranks, m), zb_v(ranks, m), dualpipe_v(ranks, m)})
        for (const Program& program : s.programs) {
          std::vector<int> next(static_cast<std::size_t>(s.chunks), 0);
          for (const Action& a : program)
            if (ends_backward(a.act)) {
              EXPECT_EQ(a.microbatch, next[static_cast<std::size_t>(a.chunk)]++) << s.kind;
            }
        }
}

TEST(ZeroBubble, SettingsChooseTheSchedule) {
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
  EXPECT_EQ(make_schedule(p, 1, 4).programs, with_delayed_weights(one_f_one_b(2, 4)).programs);
  EXPECT_EQ(make_schedule(p, 2, 4).kind, "interleaved with delayed weight gradients");
  EXPECT_THROW(zb_h1(2, 0), ConfigError);
  EXPECT_THROW(zb_v(0, 2), ConfigError);
}

}  // namespace
}  // namespace colonnade::schedule
