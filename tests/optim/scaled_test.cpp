// Tensors stored with a scale: rounding by LibTorch's dtypes, powers of two, and exact repetition.
#include "colonnade/optim/scaled.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/device.h"

namespace colonnade::optim {
namespace {

using at::Tensor;

Tensor random_values(double size) { return at::randn({999}, test::options(at::kFloat)) * size; }

Tensor empty_like(const Tensor& values, at::ScalarType type) { return at::empty_like(values, type); }

TEST(Scaled, OnlyFp16AndFp8HaveAScale) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    EXPECT_FALSE(make_scale(type, test::device()).defined());
    const Tensor values = random_values(1), stored = empty_like(values, type);
    store(values, stored, {});
    EXPECT_TRUE(at::equal(stored, values.to(type)));
    EXPECT_TRUE(unscaled(stored, {}).is_same(stored));
  }
  for (const auto type : {at::kHalf, at::kFloat8_e4m3fn}) {
    const Tensor scale = make_scale(type, test::device());
    EXPECT_TRUE(at::equal(scale.cpu(), at::tensor({1.0F, 0.0F})));
    const Tensor zeros = at::zeros({5}, test::options(at::kFloat)), stored = empty_like(zeros, type);
    store(zeros, stored, scale);
    EXPECT_TRUE(at::equal(unscaled(stored, scale), zeros));
  }
}

TEST(Scaled, RoundsAfterDivisionByTheSmallestPowerOfTwoThatFits) {
  at::manual_seed(1);
  for (const auto type : {at::kHalf, at::kFloat8_e4m3fn})
    for (const double size : {1e-12, 1e-3, 1.0, 3e7}) {
      const double limit = type == at::kHalf ? 65504.0 / 2 : 448.0;
      const Tensor values = random_values(size), stored = empty_like(values, type);
      const Tensor scale = make_scale(type, test::device());
      store(values, stored, scale);
      const double largest = values.abs().max().item<double>();
      const double factor = std::exp2(std::ceil(std::log2(largest / limit)));
      EXPECT_EQ(scale[0].item<double>(), factor);
      EXPECT_EQ(scale[1].item<double>(), 0);
      EXPECT_TRUE(at::equal(unscaled(stored, scale), (values / factor).to(type).to(at::kFloat) * factor));
    }
}

TEST(Scaled, StoresItsOwnValuesWithoutRounding) {
  at::manual_seed(2);
  for (const auto type : {at::kHalf, at::kFloat8_e4m3fn})
    for (const double size : {1e-12, 1.0, 448.0, 3e7}) {
      const Tensor values = random_values(size), first = empty_like(values, type);
      const Tensor scale = make_scale(type, test::device());
      store(values, first, scale);
      const Tensor kept = unscaled(first, scale);
      const Tensor second = empty_like(values, type), second_scale = make_scale(type, test::device());
      store(kept, second, second_scale);
      EXPECT_TRUE(at::equal(unscaled(second, second_scale), kept));
    }
}

}  // namespace
}  // namespace colonnade::optim
