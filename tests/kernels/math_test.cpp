// Fast exponential and activation formulas against the C library in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "colonnade/kernels/cpu/vector.h"
#include "colonnade/kernels/formulas.h"

namespace colonnade::kernels {
namespace {

using cpu::Math;

TEST(FastExp, IsAccurateToTwoUlp) {
  for (float x = -87.0F; x < 88.0F; x += 0.00137F) {
    const double expected = std::exp(static_cast<double>(x));
    EXPECT_NEAR(cpu::fast_exp(x) / expected, 1.0, 2.5e-7) << x;
  }
  EXPECT_EQ(cpu::fast_exp(0.0F), 1.0F);
  EXPECT_LT(cpu::fast_exp(-std::numeric_limits<float>::infinity()), 2e-38F);
  EXPECT_GT(cpu::fast_exp(std::numeric_limits<float>::infinity()), 2e38F);
  EXPECT_TRUE(std::isnan(cpu::fast_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastCdf, EqualsTheNormalDistribution) {
  for (double z = -9; z < 9; z += 0.0071) {
    const auto density = static_cast<float>(std::exp(-0.5 * z * z));
    EXPECT_NEAR(Math::cdf(static_cast<float>(z), density), 0.5 * std::erfc(-z * M_SQRT1_2), 3e-7) << z;
  }
}

double value(ActivationKind kind, double z) {
  if (kind == ActivationKind::kSquaredRelu) return z > 0 ? z * z : 0;
  if (kind == ActivationKind::kRelu) return z > 0 ? z : 0;
  if (kind == ActivationKind::kSwiglu) return z / (1 + std::exp(-z));
  if (kind == ActivationKind::kGeluTanh || kind == ActivationKind::kGegluTanh)
    return z / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
  return z * 0.5 * (1 + std::erf(z / std::sqrt(2.0)));
}

template <ActivationKind kKind>
void check() {
  constexpr double kStep = 1e-5;
  for (double z = -6.003; z < 6; z += 0.0173) {
    const double derivative = (value(kKind, z + kStep) - value(kKind, z - kStep)) / (2 * kStep);
    EXPECT_NEAR((value_derivative<kKind, Math>(z).value), value(kKind, z), 1e-13);
    EXPECT_NEAR((value_derivative<kKind, Math>(z).derivative), derivative, 1e-8);
    EXPECT_NEAR((value_derivative<kKind, Math>(static_cast<float>(z)).value), value(kKind, z),
                3e-6 + 3e-7 * std::abs(value(kKind, z)));
    EXPECT_NEAR((value_derivative<kKind, Math>(static_cast<float>(z)).derivative), derivative, 3e-6);
  }
}

TEST(Activation, ValueAndDerivativeFollowTheDefinition) {
  check<ActivationKind::kGeluErf>();
  check<ActivationKind::kGeluTanh>();
  check<ActivationKind::kSquaredRelu>();
  check<ActivationKind::kRelu>();
  check<ActivationKind::kSwiglu>();
}

}  // namespace
}  // namespace colonnade::kernels
