// Dropout: the mask follows the formula, forward and backward, and is equal for every sharding.
#include "colonnade/ops/dropout.h"

#include <cmath>

#include "colonnade/base/error.h"
#include "colonnade/base/philox.h"
#include "colonnade/tensor/dtypes.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kCols = 203;

DropoutKey key(std::vector<std::int64_t> samples = {3, 1000000007}) {
  return {.key = 42,
          .samples = at::tensor(samples, test::options(at::kLong)),
          .sequence_length = kRows,
          .hidden_size = kCols};
}

/// 1 for elements kept by the formula of DropoutKey.
Tensor keep_mask(double p) {
  const Tensor keep = at::zeros({kRows, 2, kCols}, at::kDouble);
  const Tensor samples = key().samples.cpu();
  const auto k = key();
  for (std::int64_t s = 0; s < kRows; ++s)
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t h = 0; h < kCols; ++h) {
        const auto counter = static_cast<std::uint64_t>(s * ((kCols + 3) / 4) + h / 4);
        const auto words =
            Philox{k.key}(counter, static_cast<std::uint64_t>(samples[b].item<std::int64_t>()));
        keep[s][b][h] = uniform(words[static_cast<std::size_t>(h % 4)]) < p ? 0.0 : 1.0;
      }
  return keep.to(test::device());
}

TEST(Dropout, FollowsTheFormula) {
  const Tensor y = dropout(at::ones({kRows, 2, kCols}, test::options(at::kDouble)), 0.3, key());
  EXPECT_LT(distance(y, keep_mask(0.3) / 0.7), 1e-14);
  EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.06);
}

TEST(Dropout, IsEqualForEverySharding) {
  const Tensor x = test::random({kRows, 2, kCols}, at::kFloat);
  const Tensor full = dropout(x, 0.2, key());
  for (const std::int64_t col : {0, 1, 7, 64, 130}) {
    DropoutKey shard_key = key({1000000007});
    shard_key.sequence_offset = 2;
    shard_key.hidden_offset = col;
    const Tensor local = dropout(x.narrow(0, 2, 3).narrow(1, 1, 1).narrow(2, col, 70), 0.2, shard_key);
    EXPECT_TRUE(at::equal(local, full.narrow(0, 2, 3).narrow(1, 1, 1).narrow(2, col, 70))) << col;
  }
}

TEST(Dropout, OfASubsequenceEqualsTheSamples) {
  const Tensor x = test::random({kRows, 2, kCols}, at::kFloat);
  DropoutKey subsequence = key();
  subsequence.begin = 2;
  subsequence.second_chunk_row = 1;  // rows 2 and 4 of the sample
  subsequence.second_chunk_begin = 2;
  const Tensor rows = at::tensor({2, 4}, test::options(at::kLong));
  EXPECT_TRUE(at::equal(dropout(x.index_select(0, rows), 0.2, subsequence),
                        dropout(x, 0.2, key()).index_select(0, rows)));
  const Tensor weights = test::random({2, 3, kRows, kRows}, at::kFloat);
  DropoutKey sequence = key();
  sequence.begin = 3;
  const auto slice = [](const Tensor& t) { return t.narrow(2, 3, 2).narrow(3, 3, 2); };
  EXPECT_TRUE(at::equal(attention_dropout(slice(weights).contiguous(), 0.2, sequence),
                        slice(attention_dropout(weights, 0.2, key()))));
}

TEST(BiasDropoutAdd, EqualsTheUnfusedOps) {
  at::manual_seed(1);
  for (const auto type : test::kTypes)
    for (const double p : {0.0, 0.4})
      for (const auto& [with_bias, fp32_stream] :
           {std::pair{false, false}, std::pair{true, false}, std::pair{false, true}, std::pair{true, true}}) {
        const Tensor x = test::random({kRows, 2, kCols}, type).set_requires_grad(true);
        const at::ScalarType stream = fp32_stream ? tensor::acc_type(type) : type;
        const Tensor residual = test::random({kRows, 2, kCols}, stream).set_requires_grad(true);
        const auto bias = test::parameter(test::random({kCols}, type));
        const Tensor x_ref = x.detach().to(at::kDouble).set_requires_grad(true);
        const Tensor bias_ref = bias->value.detach().to(at::kDouble).set_requires_grad(true);
        const Tensor keep = keep_mask(p) / (1 - p);
        const Tensor ref = residual.detach().to(at::kDouble) + keep * (with_bias ? x_ref + bias_ref : x_ref);
        const Tensor probe = test::random(ref.sizes());
        const auto expected = test::gradients(ref, probe, {x_ref, bias_ref});
        const Tensor y = bias_dropout_add(x, with_bias ? bias.get() : nullptr, residual, p, key());
        (y.to(at::kDouble) * probe).sum().backward();
        const double bound = test::tolerance(type);
        EXPECT_EQ(y.scalar_type(), stream);
        EXPECT_LT(distance(y, ref), test::tolerance(stream)) << "rounded once, to the dtype of the residual";
        EXPECT_LT(distance(x.grad(), expected[0]), bound);
        EXPECT_LT(distance(residual.grad(), probe), bound);
        if (with_bias) {
          EXPECT_LT(distance(bias->main_grad, expected[1]), bound);
        }
      }
}

/// Factors 1 + eps (2 u - 1), with u of the formula of DropoutKey.
Tensor jitter_factors(double eps) {
  const Tensor factors = at::zeros({kRows, 2, kCols}, at::kDouble);
  const auto k = key();
  const Tensor samples = k.samples.cpu();
  for (std::int64_t s = 0; s < kRows; ++s)
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t h = 0; h < kCols; ++h) {
        const auto counter = static_cast<std::uint64_t>(s * ((kCols + 3) / 4) + h / 4);
        const auto words =
            Philox{k.key}(counter, static_cast<std::uint64_t>(samples[b].item<std::int64_t>()));
        factors[s][b][h] = 1 + eps * (2.0 * uniform(words[static_cast<std::size_t>(h % 4)]) - 1);
      }
  return factors.to(test::device());
}

TEST(Jitter, FollowsTheFormulaForwardAndBackward) {
  at::manual_seed(1);
  const Tensor factors = jitter_factors(0.25);
  EXPECT_GT(factors.max().item<double>(), 1.24);
  EXPECT_LT(factors.min().item<double>(), 0.76);
  for (const auto type : test::kTypes) {
    const Tensor x = test::random({kRows, 2, kCols}, type).set_requires_grad(true);
    const Tensor y = jitter(x, 0.25, key());
    EXPECT_LT(distance(y, x.detach().to(at::kDouble) * factors), test::tolerance(type));
    const Tensor probe = test::random(y.sizes()).to(type);
    y.backward(probe);
    EXPECT_LT(distance(x.grad(), probe.to(at::kDouble) * factors), test::tolerance(type));
  }
  const Tensor x = test::random({kRows, 2, kCols});
  EXPECT_TRUE(jitter(x, 0, {}).is_same(x));
}

TEST(Jitter, IsEqualForEverySharding) {
  const Tensor x = test::random({kRows, 2, kCols}, at::kFloat);
  const Tensor full = jitter(x, 0.1, key());
  DropoutKey shard_key = key({1000000007});
  shard_key.sequence_offset = 1;  // rows 1, 2 and 4, 5, as on a context-parallel rank
  shard_key.second_chunk_row = 2;
  shard_key.second_chunk_begin = 4;
  const Tensor rows = at::cat({x.narrow(0, 1, 2), x.narrow(0, 4, 2)}).narrow(1, 1, 1).contiguous();
  const Tensor expected = at::cat({full.narrow(0, 1, 2), full.narrow(0, 4, 2)}).narrow(1, 1, 1);
  EXPECT_TRUE(at::equal(jitter(rows, 0.1, shard_key), expected));
}

TEST(NormalLike, FollowsTheFormula) {
  constexpr std::uint64_t kAngle = 43;
  const auto u = [](std::uint64_t of, std::int64_t s, std::int64_t h) {
    const auto counter = static_cast<std::uint64_t>(s * ((kCols + 3) / 4) + h / 4);
    return double{uniform(Philox{of}(counter, 3)[static_cast<std::size_t>(h % 4)])};
  };
  for (const auto type : {at::kDouble, at::kFloat}) {
    const Tensor x = test::random({kRows, 2, kCols}, type);
    const Tensor z = normal_like(x, key(), kAngle);
    EXPECT_EQ(z.scalar_type(), type);
    EXPECT_FALSE(z.requires_grad());
    EXPECT_TRUE(at::equal(z, normal_like(at::zeros_like(x), key(), kAngle))) << "x is not read";
    const Tensor first = z.select(1, 0).to(at::kDouble).cpu();
    for (std::int64_t s = 0; s < kRows; ++s)
      for (std::int64_t h = 0; h < kCols; ++h)
        EXPECT_NEAR(first[s][h].item<double>(),
                    std::sqrt(-2 * std::log(1 - u(42, s, h))) * std::cos(2 * M_PI * u(kAngle, s, h)), 1e-5);
    EXPECT_NEAR(z.mean().item<double>(), 0, 0.06);
    EXPECT_NEAR(z.to(at::kDouble).square().mean().item<double>(), 1, 0.1);
  }
  DropoutKey shard_key = key({1000000007});
  shard_key.sequence_offset = 2;
  const Tensor x = test::random({kRows, 2, kCols});
  EXPECT_TRUE(at::equal(normal_like(x.narrow(0, 2, 3).narrow(1, 1, 1), shard_key, kAngle),
                        normal_like(x, key(), kAngle).narrow(0, 2, 3).narrow(1, 1, 1)));
}

TEST(Dropout, RejectsInvalidArguments) {
  const Tensor x = test::random({kRows, 2, kCols});
  EXPECT_THROW(dropout(x, 1.0, key()), Error);
  EXPECT_THROW(dropout(x, 0.1, key({1})), Error);
  DropoutKey narrow = key();
  narrow.hidden_size = kCols - 1;
  EXPECT_THROW(dropout(x, 0.1, narrow), Error);
}

}  // namespace
}  // namespace colonnade::ops
