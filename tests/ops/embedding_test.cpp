// Embedding lookup and its gradient, unsharded and sharded by rows.
#include "colonnade/ops/embedding.h"

#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

TEST(Embedding, EqualsIndexSelectAndAccumulatesGradients) {
  at::manual_seed(1);
  const Tensor tokens = at::randint(0, 11, {3, 29}, test::options(at::kLong));
  for (const auto type : test::kTypes) {
    const auto table = test::parameter(test::random({11, 37}, type));
    const Tensor ref_table = table->value.detach().to(at::kDouble).set_requires_grad(true);
    const Tensor ref = ref_table.index_select(0, tokens.t().reshape(-1)).view({29, 3, 37});
    const Tensor probe = test::random(ref.sizes()).to(type).to(at::kDouble);
    const Tensor y = embedding(tokens, *table, 0, 11);
    EXPECT_TRUE(at::equal(y.to(at::kDouble), ref));
    for (const int times : {1, 2}) {  // the second backward adds to the first
      test::gradients(embedding(tokens, *table, 0, 11), probe, {table->value});
      EXPECT_LT(distance(table->main_grad, times * test::gradients(ref, probe, {ref_table})[0]),
                type == at::kDouble ? 1e-14 : 1e-6);
    }
  }
}

// Each pass adds one rounded sum to a main gradient that is narrower than fp32.
TEST(Embedding, AddsARoundedSumToABf16MainGradient) {
  at::manual_seed(4);
  const Tensor tokens = at::randint(0, 5, {3, 40}, test::options(at::kLong));
  const auto table = test::parameter(test::random({5, 8}, at::kBFloat16));
  table->main_grad = at::empty({5, 8}, test::options(at::kBFloat16));
  const Tensor probe = test::random({40, 3, 8}, at::kBFloat16);
  const Tensor one_hot = (tokens.t().reshape({-1, 1}) == at::arange(5, tokens.options())).to(at::kDouble);
  const Tensor sum = one_hot.t().matmul(probe.to(at::kDouble).view({-1, 8})).to(at::kFloat).to(at::kBFloat16);
  test::gradients(embedding(tokens, *table, 0, 5), probe, {table->value});
  EXPECT_LT(distance(table->main_grad, sum), 0x1p-8);
  EXPECT_GE((table->main_grad == sum).sum().item<std::int64_t>(), 39);
  test::gradients(embedding(tokens, *table, 0, 5), probe, {table->value});
  EXPECT_LT(distance(table->main_grad, 2 * sum), 0x1p-8);
}

TEST(Embedding, ReturnsZerosForRowsOfOtherRanks) {
  at::manual_seed(2);
  const Tensor tokens = at::randint(0, 11, {2, 9}, test::options(at::kLong));
  const Tensor full_table = test::random({11, 5});
  const Tensor probe = test::random({9, 2, 5});
  const auto unsharded = test::parameter(full_table);
  const Tensor y = embedding(tokens, *unsharded, 0, 11);
  test::gradients(y, probe, {unsharded->value});
  Tensor sum = at::zeros_like(y);
  for (const std::int64_t first : {0, 6}) {
    const std::int64_t rows = first == 0 ? 6 : 5;
    const Tensor padded =
        at::constant_pad_nd(full_table.narrow(0, first, rows), {0, 0, 0, 2});  // two padding rows
    const auto shard = test::parameter(padded);
    const Tensor local = embedding(tokens, *shard, first, rows);
    sum = sum + local;
    test::gradients(local, probe, {shard->value});
    EXPECT_TRUE(at::equal(shard->main_grad.narrow(0, 0, rows), unsharded->main_grad.narrow(0, first, rows)));
    EXPECT_EQ(shard->main_grad.narrow(0, rows, 2).abs().sum().item<double>(), 0.0);
  }
  EXPECT_TRUE(at::equal(sum, y));
}

TEST(Embedding, GradientIsBitwiseEqualForEveryNumberOfThreads) {
  at::manual_seed(3);
  const Tensor tokens = at::randint(0, 50, {4, 300}, test::options(at::kLong));
  const Tensor probe = test::random({300, 4, 130}, at::kFloat);
  const Tensor rows = test::random({50, 130}, at::kFloat);
  test::expect_bitwise_equal_for_all_threads([&] {
    const auto table = test::parameter(rows);
    test::gradients(embedding(tokens, *table, 0, 50), probe, {table->value});
    return table->main_grad.clone();
  });
}

TEST(Embedding, RejectsTokensOnAnotherDevice) {
  const auto table = test::parameter(test::random({11, 5}));
  EXPECT_THROW(embedding(at::zeros({2, 9}, at::dtype(at::kLong).device(at::kMeta)), *table, 0, 11), Error);
}

}  // namespace
}  // namespace colonnade::ops
