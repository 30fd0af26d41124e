// What an expert cannot take is dropped, as its rule says pair by pair.
#include "colonnade/ops/capacity.h"

#include "colonnade/base/error.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;

using Pair = std::pair<std::int64_t, std::int64_t>;  // a token and its choice

/// Pair after pair: an expert's pairs in the order in which it takes them, all behind `capacity` dropped.
Tensor one_by_one(const Tensor& experts, const Tensor& weights, std::int64_t count, std::int64_t capacity,
                  Keep keep) {
  const Tensor e = experts.cpu(), w = weights.cpu().to(at::kDouble);
  Tensor kept = e.clone();
  for (std::int64_t expert = 0; expert < count; ++expert) {
    std::vector<Pair> mine;
    for (std::int64_t t = 0; t < e.size(0); ++t)
      for (std::int64_t j = 0; j < e.size(1); ++j)
        if (e[t][j].item<std::int64_t>() == expert) mine.emplace_back(t, j);
    if (keep == Keep::kLargestWeights)
      std::ranges::stable_sort(mine, [&](const Pair& a, const Pair& b) {
        return w[a.first][a.second].item<double>() > w[b.first][b.second].item<double>();
      });
    for (std::size_t i = static_cast<std::size_t>(capacity); i < mine.size(); ++i)
      kept[mine[i].first][mine[i].second] = count;
  }
  return kept;
}

TEST(Capacity, KeepsTheLargestWeightsOrTheFirstTokens) {
  at::manual_seed(5);
  const std::int64_t n = 37, k = 2, e = 5;
  const auto [weights, experts] = test::random({n, e}).topk(k, -1);
  for (const Keep keep : {Keep::kLargestWeights, Keep::kFirstTokens})
    for (const std::int64_t capacity : {1, 7, 15, 37}) {
      const Tensor kept = within_capacity(experts, weights, e, capacity, keep);
      EXPECT_TRUE(at::equal(kept.cpu(), one_by_one(experts, weights, e, capacity, keep))) << capacity;
    }
}

TEST(Capacity, TheEarlierTokenStaysWhereWeightsAreEqual) {
  const auto longs = test::options(at::kLong);
  const Tensor experts = at::tensor({1, 0, 1, 0, 1, 2}, longs).view({3, 2});
  const Tensor kept =
      within_capacity(experts, at::full({3, 2}, 0.5, test::options(at::kFloat)), 3, 2, Keep::kLargestWeights);
  EXPECT_TRUE(at::equal(kept, at::tensor({1, 0, 1, 0, 3, 2}, longs).view({3, 2})));
}

TEST(Capacity, RefusesWhatMakesNoSense) {
  const Tensor experts = at::zeros({3, 2}, test::options(at::kLong));
  EXPECT_THROW(within_capacity(experts, at::zeros({3, 3}), 4, 1, Keep::kFirstTokens), Error);
  EXPECT_THROW(within_capacity(experts, at::zeros({3, 2}), 4, 0, Keep::kFirstTokens), Error);
}

}  // namespace
}  // namespace colonnade::ops
