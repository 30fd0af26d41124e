// Token dropping by capacity against a loop over pairs.
#include "colonnade/ops/capacity.h"

#include "colonnade/base/error.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;

using Pair = std::pair<std::int64_t, std::int64_t>;  // (token, choice)

/// Reference: sorts each expert's pairs by priority and drops those beyond `capacity`.
Tensor reference(const Tensor& experts, const Tensor& weights, std::int64_t count, std::int64_t capacity,
                 DropPolicy keep) {
  const Tensor e = experts.cpu(), w = weights.cpu().to(at::kDouble);
  Tensor kept = e.clone();
  for (std::int64_t expert = 0; expert < count; ++expert) {
    std::vector<Pair> pairs;
    for (std::int64_t t = 0; t < e.size(0); ++t)
      for (std::int64_t j = 0; j < e.size(1); ++j)
        if (e[t][j].item<std::int64_t>() == expert) pairs.emplace_back(t, j);
    if (keep == DropPolicy::kProbs)
      std::ranges::stable_sort(pairs, [&](const Pair& a, const Pair& b) {
        return w[a.first][a.second].item<double>() > w[b.first][b.second].item<double>();
      });
    for (std::size_t i = static_cast<std::size_t>(capacity); i < pairs.size(); ++i)
      kept[pairs[i].first][pairs[i].second] = count;
  }
  return kept;
}

TEST(Capacity, KeepsTheLargestWeightsOrTheFirstTokens) {
  at::manual_seed(5);
  const std::int64_t n = 37, k = 2, e = 5;
  const auto [weights, experts] = test::random({n, e}).topk(k, -1);
  for (const DropPolicy keep : {DropPolicy::kProbs, DropPolicy::kPosition})
    for (const std::int64_t capacity : {1, 7, 15, 37}) {
      const Tensor kept = apply_capacity(experts, weights, e, capacity, keep);
      EXPECT_TRUE(at::equal(kept.cpu(), reference(experts, weights, e, capacity, keep))) << capacity;
    }
}

TEST(Capacity, KeepsTheEarlierTokenOfEqualWeights) {
  const auto longs = test::options(at::kLong);
  const Tensor experts = at::tensor({1, 0, 1, 0, 1, 2}, longs).view({3, 2});
  const Tensor kept =
      apply_capacity(experts, at::full({3, 2}, 0.5, test::options(at::kFloat)), 3, 2, DropPolicy::kProbs);
  EXPECT_TRUE(at::equal(kept, at::tensor({1, 0, 1, 0, 3, 2}, longs).view({3, 2})));
}

TEST(Capacity, RejectsInvalidArguments) {
  const Tensor experts = at::zeros({3, 2}, test::options(at::kLong));
  EXPECT_THROW(apply_capacity(experts, at::zeros({3, 3}), 4, 1, DropPolicy::kPosition), Error);
  EXPECT_THROW(apply_capacity(experts, at::zeros({3, 2}), 4, 0, DropPolicy::kPosition), Error);
}

}  // namespace
}  // namespace colonnade::ops
