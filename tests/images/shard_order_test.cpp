// The shuffled order of samples: a permutation per epoch, locality within a window, dependence on the seed.
#include "colonnade/images/shard_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "colonnade/base/error.h"

namespace colonnade::images {
namespace {

TEST(Permutation, IsABijectionForEverySize) {
  for (std::int64_t size = 1; size < 300; size += size < 20 ? 1 : 37) {
    const Permutation permutation(7, 3, size);
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < size; ++i) seen.insert(permutation(i));
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), size);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), size - 1);
  }
  const Permutation large(1, 1, std::int64_t{1} << 40);
  EXPECT_LT(large(123456789), std::int64_t{1} << 40);
}

/// The image of an element is uniformly distributed: chi-squared test with 10 bins over 2,000 keys.
TEST(Permutation, IsUniform) {
  std::vector<int> counts(10, 0);
  for (std::uint64_t key = 0; key < 2000; ++key)
    ++counts[static_cast<std::size_t>(Permutation(key, 0, 10)(4))];
  double chi = 0;
  for (const int count : counts) chi += std::pow(count - 200, 2) / 200;
  EXPECT_LT(chi, 27.9);  // 9 degrees of freedom, p = 0.001
}

TEST(ShardOrder, ContainsEachSampleOncePerEpoch) {
  for (const auto& [samples, block, window] : std::vector<std::array<std::int64_t, 3>>{
           {1, 256, 64}, {10, 3, 2}, {97, 8, 3}, {256, 256, 1}, {1000, 16, 5}}) {
    const ShardOrder order(samples, 5, block, window);
    std::vector<std::vector<std::int64_t>> epochs;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::int64_t>& one = epochs.emplace_back();
      for (std::int64_t p = 0; p < samples; ++p) one.push_back(order(epoch * samples + p));
      std::vector<std::int64_t> sorted = one, all(static_cast<std::size_t>(samples));
      std::sort(sorted.begin(), sorted.end());
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(sorted, all) << samples << " " << epoch;
    }
    if (samples > 9) {
      EXPECT_NE(epochs[0], epochs[1]);
      EXPECT_NE(epochs[1], epochs[2]);
    }
  }
}

/// A window of 4 blocks of 50 reads 4 contiguous ranges of 50 (5 if the rotation splits a block).
TEST(ShardOrder, ReadsFewContiguousRangesAtATime) {
  const ShardOrder order(10000, 1, 50, 4);
  for (std::int64_t begin = 0; begin < 10000; begin += 200) {
    std::set<std::int64_t> samples;
    for (std::int64_t p = begin; p < begin + 200; ++p) samples.insert(order(p));
    int ranges = 0;
    for (const std::int64_t sample : samples) ranges += samples.contains(sample - 1) ? 0 : 1;
    EXPECT_LE(ranges, 5);
  }
}

TEST(ShardOrder, DependsOnTheSeed) {
  const ShardOrder a(500, 1, 20, 4), same(500, 1, 20, 4), b(500, 2, 20, 4);
  int equal = 0;
  for (std::int64_t n = 0; n < 500; ++n) {
    EXPECT_EQ(a(n), same(n));
    equal += a(n) == b(n) ? 1 : 0;
  }
  EXPECT_LT(equal, 20);
}

TEST(ShardOrder, RequiresSamples) { EXPECT_THROW(ShardOrder(0, 1, 1, 1), ConfigError); }

}  // namespace
}  // namespace colonnade::images
