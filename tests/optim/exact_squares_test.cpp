// The sum of squares is correct and has the same bits in every sharding and order.
#include "colonnade/optim/exact_squares.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/randperm.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "colonnade/comm/thread_ranks.h"
#include "support/split.h"

namespace colonnade::optim {
namespace {

double alone(const std::vector<at::Tensor>& tensors) {
  return exact_squares(tensors, comm::Group(), at::kCPU);
}

TEST(ExactSquares, EqualsTheSum) {
  const at::Tensor x = test::named_random("x", {3, 70001}).to(at::kFloat);
  EXPECT_NEAR(alone({x}) / x.to(at::kDouble).square().sum().item<double>(), 1.0, 1e-12);
  EXPECT_EQ(alone({at::full({5}, 3.0)}), 45.0);
  EXPECT_EQ(alone({at::full({5}, -1e-30, at::kFloat), at::zeros({2})}),
            5 * std::pow(static_cast<double>(1e-30F), 2));
  EXPECT_EQ(alone({at::zeros({4})}), 0.0);
  EXPECT_EQ(alone({}), 0.0);
}

TEST(ExactSquares, KeepsSmallElementsNextToALargeOne) {
  const at::Tensor x = at::cat({at::full({1}, 1.0, at::kDouble), at::full({1 << 21}, 0x1p-26, at::kDouble)});
  EXPECT_EQ(alone({x}), 1 + 0x1p-31);
}

TEST(ExactSquares, HasTheSameBitsInEveryOrderAndSharding) {
  const at::Tensor x =
      test::named_random("x", {50000}).to(at::kFloat) * test::named_random("y", {50000}).exp();
  const double whole = alone({x});
  EXPECT_EQ(alone({x.index_select(0, at::randperm(50000))}), whole);
  EXPECT_EQ(alone({x.narrow(0, 0, 123), x.narrow(0, 123, 50000 - 123)}), whole);
  for (const int ranks : {2, 3, 8})
    comm::run_ranks(ranks, [&](comm::Communicators& all) {
      std::vector<at::Tensor> mine;
      for (std::int64_t i = all.rank(); i < 50; i += ranks) mine.push_back(x.narrow(0, 1000 * i, 1000));
      EXPECT_EQ(exact_squares(mine, all.world(), at::kCPU), whole) << ranks;
    });
}

TEST(ExactSquares, IsNotFiniteIfAnElementIsNot) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")})
    comm::run_ranks(2, [&](comm::Communicators& all) {
      const at::Tensor x = at::full({3}, all.rank() == 1 ? bad : 1.0, at::kDouble);
      EXPECT_FALSE(std::isfinite(exact_squares({x}, all.world(), at::kCPU)));
    });
}

}  // namespace
}  // namespace colonnade::optim
