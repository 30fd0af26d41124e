// Loss scale step by step, and its initial values.
#include "colonnade/optim/loss_scale.h"

#include <gtest/gtest.h>

namespace colonnade::optim {
namespace {

constexpr double kStart = 65536;

config::Optimizer settings() {
  config::Optimizer o;
  o.initial_loss_scale = kStart;
  o.loss_scale_window = 3;
  o.hysteresis = 2;
  o.min_loss_scale = 4;
  return o;
}

TEST(LossScale, StartsFromTheSettings) {
  auto o = settings();
  EXPECT_FALSE(initial_loss_scale(o, /*fp16=*/false).dynamic);
  EXPECT_EQ(initial_loss_scale(o, false).scale, 1);
  EXPECT_TRUE(initial_loss_scale(o, true).dynamic);
  EXPECT_EQ(initial_loss_scale(o, true).scale, kStart);
  o.loss_scale = 8;
  EXPECT_FALSE(initial_loss_scale(o, true).dynamic);
  EXPECT_EQ(initial_loss_scale(o, true).scale, 8);
}

TEST(LossScale, ConstantScaleNeverChanges) {
  const auto o = settings();
  const LossScale constant{.scale = 8};
  EXPECT_EQ(next(constant, true, o).scale, 8);
  EXPECT_EQ(next(constant, false, o).growth, 0);
}

TEST(LossScale, HysteresisToleratesThenEveryOverflowHalves) {
  const auto o = settings();
  LossScale now = initial_loss_scale(o, true);
  std::vector<double> scales;
  for (int i = 0; i < 4; ++i) scales.push_back((now = next(now, true, o)).scale);
  EXPECT_EQ(scales, (std::vector<double>{kStart, kStart / 2, kStart / 4, kStart / 8}));
}

TEST(LossScale, AWindowWithoutOverflowDoubles) {
  const auto o = settings();
  LossScale now = initial_loss_scale(o, true);
  now = next(now, true, o);
  std::vector<double> scales;
  for (int i = 0; i < 6; ++i) scales.push_back((now = next(now, false, o)).scale);
  EXPECT_EQ(scales, (std::vector<double>{kStart, kStart, 2 * kStart, 2 * kStart, 2 * kStart, 4 * kStart}));
  EXPECT_EQ(now.hysteresis, 2);
}

TEST(LossScale, AShorterWindowEndsAtOnce) {
  auto o = settings();
  LossScale now = initial_loss_scale(o, true);
  for (int i = 0; i < 2; ++i) now = next(now, false, o);
  o.loss_scale_window = 2;  // a run resumed with other settings
  EXPECT_EQ(next(now, false, o).scale, 2 * kStart);
}

TEST(LossScale, AnOverflowRestartsTheWindow) {
  const auto o = settings();
  LossScale now = initial_loss_scale(o, true);
  for (const bool overflow : {false, false, true, false, false}) now = next(now, overflow, o);
  EXPECT_EQ(now.scale, kStart);
  EXPECT_EQ(next(now, false, o).scale, 2 * kStart);
}

TEST(LossScale, NeverFallsBelowTheMinimum) {
  const auto o = settings();
  LossScale now = initial_loss_scale(o, true);
  for (int i = 0; i < 100; ++i) now = next(now, true, o);
  EXPECT_EQ(now.scale, 4);
}

}  // namespace
}  // namespace colonnade::optim
