// Local parts of vocabulary-parallel cross-entropy, combined manually over two ranks.
#include "colonnade/ops/vocab_loss.h"

#include <cmath>

#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

void expect_two_ranks_equal_full_loss(double cap) {
  at::manual_seed(1);
  constexpr std::int64_t kTokens = 23;
  constexpr std::int64_t kVocab = 5003;
  constexpr std::int64_t kHalf = 2560;  // the second rank holds 2443 tokens and 117 padding columns
  for (const auto type : test::kTypes) {
    const Tensor logits = (test::random({kTokens, kVocab}, type) * 3).set_requires_grad(true);
    const Tensor targets = at::randint(0, kVocab, {kTokens}, test::options(at::kLong));
    const Tensor logits64 = logits.detach().to(at::kDouble).set_requires_grad(true);
    const Tensor capped = cap > 0 ? cap * (logits64 / cap).tanh() : logits64;
    const Tensor loss = -at::log_softmax(capped, -1).gather(1, targets.unsqueeze(1)).squeeze(1);
    const Tensor grad = test::random({kTokens});
    const Tensor expected = torch::autograd::grad({loss}, {logits64}, {grad})[0];

    std::vector<Tensor> shards{
        logits.detach().narrow(1, 0, kHalf).contiguous(),
        at::constant_pad_nd(logits.detach().narrow(1, kHalf, kVocab - kHalf), {0, 2 * kHalf - kVocab}, 1e4)};
    const LogitStats low = logit_stats(shards[0], targets, 0, kHalf, cap);
    const LogitStats high = logit_stats(shards[1], targets, kHalf, kVocab - kHalf, cap);
    const Tensor max = at::maximum(low.max, high.max);
    const Tensor sum = low.sum_exp * (low.max - max).exp() + high.sum_exp * (high.max - max).exp();
    EXPECT_LT(distance(sum.log() + max - low.target - high.target, loss), type == at::kDouble ? 1e-12 : 2e-6);

    const Tensor grad_n = grad.to(max.scalar_type());
    logit_gradient(shards[0], {.max = max, .sum_exp = sum}, targets, grad_n, 0, kHalf, cap);
    logit_gradient(shards[1], {.max = max, .sum_exp = sum}, targets, grad_n, kHalf, kVocab - kHalf, cap);
    EXPECT_LT(distance(shards[0], expected.narrow(1, 0, kHalf)), test::tolerance(type));
    EXPECT_LT(distance(shards[1].narrow(1, 0, kVocab - kHalf), expected.narrow(1, kHalf, kVocab - kHalf)),
              test::tolerance(type));
    EXPECT_EQ(shards[1].narrow(1, kVocab - kHalf, 2 * kHalf - kVocab).abs().max().item<double>(), 0.0);
  }
}

TEST(VocabLoss, TwoRanksWithPaddingEqualTheFullLossAndGradient) { expect_two_ranks_equal_full_loss(0); }

TEST(VocabLoss, AppliesSoftCapsOnEveryRank) {
  for (const double cap : {0.5, 4.0}) expect_two_ranks_equal_full_loss(cap);
}

TEST(VocabLoss, ASoftCapBoundsLargeLogits) {
  const Tensor logits = at::tensor({1e30, -1e30, 3.0}, test::options(at::kFloat)).view({1, 3});
  const Tensor target = at::ones({1}, test::options(at::kLong));
  const LogitStats stats = logit_stats(logits, target, 0, 3, 2);
  const double capped = 2 * std::tanh(1.5);
  EXPECT_NEAR(stats.max.item<double>(), 2, 1e-6);
  EXPECT_NEAR(stats.target.item<double>(), -2, 1e-6);
  EXPECT_NEAR(stats.sum_exp.item<double>(), 1 + std::exp(-4.0) + std::exp(capped - 2), 1e-6);
}

TEST(VocabLoss, ARankWithOnlyPaddingContributesNothing) {
  const Tensor logits = at::ones({3, 8}, test::options(at::kFloat));
  const LogitStats stats = logit_stats(logits, at::zeros({3}, test::options(at::kLong)), 100, 0);
  EXPECT_TRUE(stats.max.isinf().all().item<bool>());
  EXPECT_EQ(stats.sum_exp.sum().item<double>(), 0.0);
  EXPECT_EQ(stats.target.sum().item<double>(), 0.0);
}

/// Three chunks of a row on the CPU, many columns per thread on a GPU.
constexpr std::int64_t kColumns = 5003;

LogitStats stats_of(const Tensor& logits) {
  return logit_stats(logits, at::zeros({logits.size(0)}, test::options(at::kLong)), 0, kColumns);
}

TEST(VocabLoss, PropagatesNanFromAnyColumn) {
  at::manual_seed(2);
  const std::vector<std::int64_t> columns{0, 700, 2047, 2048, kColumns - 1};
  for (const auto type : test::kTypes)
    for (const std::int64_t largest : {1, 4000}) {
      Tensor logits = test::random({6, kColumns}, type);
      logits.select(1, largest).fill_(9);
      for (std::size_t row = 0; row < columns.size(); ++row)
        logits[static_cast<std::int64_t>(row)][columns[row]] = NAN;
      logits[5].narrow(0, 0, 2048).fill_(NAN);  // a full chunk
      const LogitStats stats = stats_of(logits);
      EXPECT_TRUE(stats.sum_exp.isnan().all().item<bool>()) << type << '\n' << stats.sum_exp;
      if (largest == 4000) {
        EXPECT_TRUE(stats.max.eq(9).all().item<bool>());
      }
    }
}

TEST(VocabLoss, IgnoresMinusInfinity) {
  at::manual_seed(3);
  for (const auto type : test::kTypes) {
    Tensor logits = test::random({4, kColumns}, type);
    for (const auto& [row, leading] :
         std::vector<std::pair<int, int>>{{0, 1}, {1, 2048}, {2, 2500}, {3, 5000}})
      logits[row].narrow(0, 0, leading).fill_(-INFINITY);
    const LogitStats stats = stats_of(logits);
    EXPECT_LT(distance(stats.sum_exp.log() + stats.max, at::logsumexp(logits.to(at::kDouble), {1})),
              type == at::kDouble ? 1e-12 : 2e-6);
  }
}

TEST(VocabLoss, RejectsTargetsOnAnotherDevice) {
  const Tensor targets = at::zeros({3}, at::dtype(at::kLong).device(at::kMeta));
  EXPECT_THROW(logit_stats(at::ones({3, 8}, test::options(at::kFloat)), targets, 0, 8), Error);
}

}  // namespace
}  // namespace colonnade::ops
