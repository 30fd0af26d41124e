// The local parts of vocabulary-parallel cross-entropy, put together by hand over two ranks.
#include "colonnade/ops/vocab_loss.h"

#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

TEST(VocabLoss, TwoRanksWithFillingGiveTheWholeLossAndGradient) {
  at::manual_seed(1);
  constexpr std::int64_t kTokens = 23;
  constexpr std::int64_t kVocab = 5003;
  constexpr std::int64_t kHalf = 2560;  // the second rank holds 2443 tokens and 117 of filling
  for (const auto type : test::kTypes) {
    const Tensor logits = (test::random({kTokens, kVocab}, type) * 3).set_requires_grad(true);
    const Tensor targets = at::randint(0, kVocab, {kTokens}, test::options(at::kLong));
    const Tensor wide = logits.detach().to(at::kDouble).set_requires_grad(true);
    const Tensor loss = -at::log_softmax(wide, -1).gather(1, targets.unsqueeze(1)).squeeze(1);
    const Tensor grad = test::random({kTokens});
    const Tensor expected = torch::autograd::grad({loss}, {wide}, {grad})[0];

    std::vector<Tensor> parts{
        logits.detach().narrow(1, 0, kHalf).contiguous(),
        at::constant_pad_nd(logits.detach().narrow(1, kHalf, kVocab - kHalf), {0, 2 * kHalf - kVocab}, 1e4)};
    const LogitStats low = logit_stats(parts[0], targets, 0, kHalf);
    const LogitStats high = logit_stats(parts[1], targets, kHalf, kVocab - kHalf);
    const Tensor max = at::maximum(low.max, high.max);
    const Tensor sum = low.sum_exp * (low.max - max).exp() + high.sum_exp * (high.max - max).exp();
    EXPECT_LT(distance(sum.log() + max - low.target - high.target, loss), type == at::kDouble ? 1e-12 : 2e-6);

    const Tensor grad_n = grad.to(max.scalar_type());
    logit_gradient(parts[0], max, sum, targets, grad_n, 0, kHalf);
    logit_gradient(parts[1], max, sum, targets, grad_n, kHalf, kVocab - kHalf);
    EXPECT_LT(distance(parts[0], expected.narrow(1, 0, kHalf)), test::tolerance(type));
    EXPECT_LT(distance(parts[1].narrow(1, 0, kVocab - kHalf), expected.narrow(1, kHalf, kVocab - kHalf)),
              test::tolerance(type));
    EXPECT_EQ(parts[1].narrow(1, kVocab - kHalf, 2 * kHalf - kVocab).abs().max().item<double>(), 0.0);
  }
}

TEST(VocabLoss, ARankOfFillingAloneCountsNothing) {
  const Tensor logits = at::ones({3, 8}, test::options(at::kFloat));
  const LogitStats stats = logit_stats(logits, at::zeros({3}, test::options(at::kLong)), 100, 0);
  EXPECT_TRUE(stats.max.isinf().all().item<bool>());
  EXPECT_EQ(stats.sum_exp.sum().item<double>(), 0.0);
  EXPECT_EQ(stats.target.sum().item<double>(), 0.0);
}

}  // namespace
}  // namespace colonnade::ops
