// Token permutation against index_select and index_add, with gradients.
#include "colonnade/ops/permute.h"

#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

TEST(PermuteMap, SortsByExpertThenToken) {
  const Tensor experts = at::tensor({2, 0, 0, 2, 3, 0}, test::options(at::kLong)).view({3, 2});
  const PermuteMap order = make_permute_map(experts, 5);
  const auto list = [](const Tensor& x) {
    const Tensor host = x.reshape(-1).cpu();
    return std::vector<std::int64_t>(host.const_data_ptr<std::int64_t>(),
                                     host.const_data_ptr<std::int64_t>() + host.numel());
  };
  EXPECT_EQ(list(order.pair), (std::vector<std::int64_t>{1, 2, 5, 0, 3, 4}));
  EXPECT_EQ(list(order.token), (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(list(order.row_of_pair), (std::vector<std::int64_t>{3, 0, 1, 4, 5, 2}));
  EXPECT_EQ(list(order.counts), (std::vector<std::int64_t>{3, 0, 2, 1, 0}));
}

TEST(Permute, RoundTripEqualsTheReferenceWithGradients) {
  at::manual_seed(3);
  const std::int64_t n = 41, k = 3, h = 300, e = 7;
  const Tensor experts = std::get<1>(test::random({n, e}).topk(k, -1));
  const PermuteMap order = make_permute_map(experts, e);
  for (const auto type : test::kTypes) {
    SCOPED_TRACE(c10::toString(type));
    const auto sums = type == at::kDouble ? at::kDouble : at::kFloat;
    const Tensor x = test::random({n, h}, type).set_requires_grad(true);
    const Tensor weights = at::rand({n, k}, test::options(sums)).set_requires_grad(true);
    const Tensor rx = x.detach().to(at::kDouble).set_requires_grad(true);
    const Tensor rw = weights.detach().to(at::kDouble).set_requires_grad(true);
    const Tensor rows = permute(x, order);
    EXPECT_TRUE(at::equal(rows.to(at::kDouble), rx.detach().index_select(0, order.token)));
    const Tensor y = unpermute(rows, weights, order);
    const Tensor ry = at::zeros_like(rx).index_add(
        0, order.token,
        rx.index_select(0, order.token) * rw.reshape(-1).index_select(0, order.pair).unsqueeze(-1));
    EXPECT_LT(distance(y, ry), test::tolerance(type));
    const Tensor probe = test::random({n, h}).to(type).to(at::kDouble);
    const auto got = test::gradients(y, probe, {x, weights});
    const auto expected = test::gradients(ry, probe, {rx, rw});
    EXPECT_LT(distance(got[0], expected[0]), test::tolerance(type));
    EXPECT_LT(distance(got[1], expected[1]), test::tolerance(type));
  }
}

TEST(Permute, DroppedPairsContributeNothing) {
  // The second choice of token 0 is dropped.
  PermuteMap order;
  const auto longs = test::options(at::kLong);
  order.token = at::tensor({0, 1, 1}, longs);
  order.pair = at::tensor({0, 2, 3}, longs);
  order.row_of_pair = at::tensor({0, -1, 1, 2}, longs).view({2, 2});
  const Tensor x = test::random({2, 5}).set_requires_grad(true);
  const Tensor weights = at::full({2, 2}, 0.5, test::options(at::kDouble)).set_requires_grad(true);
  const Tensor y = unpermute(permute(x, order), weights, order);
  EXPECT_LT(distance(y[0], 0.5 * x[0]), 1e-15);
  EXPECT_LT(distance(y[1], x[1]), 1e-15);
  const auto grads = test::gradients(y, at::ones_like(y), {x, weights});
  EXPECT_LT(distance(grads[0][0], at::full({5}, 0.5, test::options(at::kDouble))), 1e-15);
  EXPECT_EQ(grads[1][0][1].item<double>(), 0);
}

// Experts 0 to 4 with capacity 3; expert 5 marks dropped pairs.
TEST(PermuteMap, WithACapacityOmitsDroppedPairs) {
  const auto longs = test::options(at::kLong);
  const Tensor experts = at::tensor({2, 0, 0, 2, 3, 5, 5, 0}, longs).view({4, 2});
  const PermuteMap order = make_permute_map(experts, {0, 5, 5, 3, false});
  EXPECT_TRUE(at::equal(order.pair, at::tensor({1, 2, 7, 0, 3, 4}, longs)));
  EXPECT_TRUE(at::equal(order.row_of_pair, at::tensor({3, 0, 1, 4, 5, -1, -1, 2}, longs).view({4, 2})));
  EXPECT_TRUE(at::equal(order.counts, at::tensor({3, 0, 2, 1, 0}, longs)));
  const PermuteMap padded = make_permute_map(experts, {2, 2, 5, 3, true});
  EXPECT_TRUE(at::equal(padded.token, at::tensor({0, 1, -1, 2, -1, -1}, longs)));
  EXPECT_TRUE(at::equal(padded.row_of_pair, at::tensor({0, -1, -1, 1, 3, -1, -1, -1}, longs).view({4, 2})));
  EXPECT_TRUE(at::equal(padded.counts, at::tensor({3, 3}, longs)));
}

TEST(Permute, PaddingRowsAreZeroAndIgnored) {
  at::manual_seed(3);
  const std::int64_t n = 23, k = 2, h = 70, e = 4;
  const Tensor experts = std::get<1>(test::random({n, e}).topk(k, -1));
  const PermuteMap unpadded = make_permute_map(experts, {1, 2, e, n, false});
  const PermuteMap padded = make_permute_map(experts, {1, 2, e, n, true});
  for (const auto type : test::kTypes) {
    SCOPED_TRACE(c10::toString(type));
    const auto sums = type == at::kDouble ? at::kDouble : at::kFloat;
    const Tensor x = test::random({n, h}, type).set_requires_grad(true);
    const Tensor weights = at::rand({n, k}, test::options(sums)).set_requires_grad(true);
    const Tensor rows = permute(x, padded);
    ASSERT_EQ(rows.size(0), 2 * n);
    EXPECT_EQ(rows.detach().masked_select(padded.token.lt(0).unsqueeze(-1)).abs().sum().item<double>(), 0);
    const Tensor probe = test::random({n, h});
    // Padding rows become nonzero after experts with biases; they must still be ignored.
    const Tensor y = unpermute(rows + 1, weights, padded),
                 z = unpermute(permute(x, unpadded) + 1, weights, unpadded);
    EXPECT_TRUE(at::equal(y, z));
    const auto got = test::gradients(y, probe, {x, weights}),
               expected = test::gradients(z, probe, {x, weights});
    EXPECT_TRUE(at::equal(got[0], expected[0]));
    EXPECT_TRUE(at::equal(got[1], expected[1]));
    const Tensor leaf = rows.detach().set_requires_grad(true);
    const Tensor grad_rows = test::gradients(unpermute(leaf, weights.detach(), padded), probe, {leaf})[0];
    EXPECT_EQ(grad_rows.masked_select(padded.token.lt(0).unsqueeze(-1)).abs().sum().item<double>(), 0);
  }
}

TEST(Permute, IsBitwiseEqualForEveryNumberOfThreads) {
  at::manual_seed(4);
  const Tensor experts = std::get<1>(test::random({500, 8}).topk(2, -1));
  const PermuteMap order = make_permute_map(experts, 8);
  const Tensor rows = test::random({1000, 130}, at::kFloat);
  const Tensor weights = at::rand({500, 2}, test::options(at::kFloat));
  test::expect_bitwise_equal_for_all_threads([&] { return unpermute(rows, weights, order); });
}

}  // namespace
}  // namespace colonnade::ops
