// Vectorized normal numbers against a scalar Box-Muller transform in float64.
#include "colonnade/tensor/normal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace colonnade::tensor {
namespace {

std::vector<float> normal_numbers(const Philox& draw, std::int64_t first, std::int64_t count, float std = 1) {
  std::vector<float> out(static_cast<std::size_t>(count));
  normal_run(draw, first, count, std, out.data());
  return out;
}

/// Number g by definition.
double definition(const Philox& draw, std::int64_t g) {
  const auto words = draw(static_cast<std::uint64_t>(g / 4));
  const std::size_t j = g % 4 < 2 ? 0 : 2;
  const double u = ((words[j] >> 8) + 1.0) * 0x1.0p-24;
  const double angle = 2 * std::numbers::pi * words[j + 1] * 0x1.0p-32;
  return std::sqrt(-2 * std::log(u)) * (g % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

TEST(NormalRun, FollowsItsDefinition) {
  const Philox draw{0x123456789abcdef0ULL};
  constexpr std::int64_t kFirst = 17179869184 - 50'000;  // the counter's low word overflows
  const auto got = normal_numbers(draw, kFirst, 100'000, 0.5F);
  for (std::int64_t i = 0; i < 100'000; ++i)
    ASSERT_NEAR(got[static_cast<std::size_t>(i)], 0.5 * definition(draw, kFirst + i), 2e-6) << i;
}

TEST(NormalRun, IsBitwiseEqualHoweverItIsSplit) {
  const Philox draw{7};
  const auto full = normal_numbers(draw, 0, 3000);
  for (const std::int64_t first : {0, 1, 2, 3, 255, 256, 257, 1022})
    for (const std::int64_t count : {0, 1, 2, 5, 255, 256, 300, 1500}) {
      const auto range = normal_numbers(draw, first, count);
      for (std::int64_t i = 0; i < count; ++i)
        ASSERT_EQ(range[static_cast<std::size_t>(i)], full[static_cast<std::size_t>(first + i)])
            << first << " " << i;
    }
}

TEST(NormalRun, HasNormalMoments) {
  const auto x = normal_numbers(Philox{11}, 0, 1'000'000);
  double sum = 0, squares = 0, fourth = 0;
  for (const double v : x) {
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
  }
  const double n = 1e6;
  EXPECT_NEAR(sum / n, 0.0, 0.005);
  EXPECT_NEAR(squares / n, 1.0, 0.01);
  EXPECT_NEAR(fourth / n, 3.0, 0.06);
}

}  // namespace
}  // namespace colonnade::tensor
