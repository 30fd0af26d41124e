// Random number generators against values printed by NumPy 2.4.6 and torch.
#include "colonnade/data/numpy_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "colonnade/data/sampler.h"

namespace colonnade::data {
namespace {

using Ints = std::vector<std::int64_t>;

TEST(Mt19937, MatchesTheStandardLibrary) {
  for (const std::uint32_t seed : {0U, 1U, 1234U, 4294967295U}) {
    Mt19937 own(seed);
    std::mt19937 known(seed);
    for (int i = 0; i < 3000; ++i) ASSERT_EQ(own(), known()) << seed << ' ' << i;
  }
}

TEST(RandomState, ShufflesLongListsLikeSingleDraws) {
  for (const std::size_t size : {0U, 1U, 2U, 255U, 256U, 257U, 1000U, 5000U}) {
    std::vector<std::int64_t> values(size), expected(size);
    std::iota(values.begin(), values.end(), 0);
    expected = values;
    RandomState one(7), other(7);
    one.shuffle(std::span(values));
    for (std::size_t i = size; i-- > 1;) std::swap(expected[i], expected[other.bounded(i)]);
    EXPECT_EQ(values, expected) << size;
    EXPECT_EQ(one.bounded(1000), other.bounded(1000)) << size;  // equal numbers of draws
  }
}

TEST(RandomState, ShuffleAndRandomSampleMatchNumpy) {
  RandomState random(1234);
  Ints values(20);
  std::iota(values.begin(), values.end(), 0);
  random.shuffle(std::span(values));
  EXPECT_EQ(values, (Ints{3, 13, 2, 16, 14, 5, 4, 0, 8, 18, 17, 11, 10, 9, 7, 1, 19, 12, 6, 15}));
  EXPECT_DOUBLE_EQ(random.random_sample(), 0.56119618606562494);
  EXPECT_DOUBLE_EQ(random.random_sample(), 0.50308316530780972);
}

TEST(RandomState, BoundedIntegersMatchNumpy) {
  RandomState random(1234);
  Ints values;
  for (int i = 0; i < 8; ++i) values.push_back(random.randint(0, 10));
  EXPECT_EQ(values, (Ints{3, 6, 5, 4, 8, 9, 1, 7}));
  RandomState wide(7);  // numpy.random.RandomState(7).randint(0, 2**40, dtype=int64) four times
  values.clear();
  for (int i = 0; i < 4; ++i) values.push_back(wide.randint(0, std::int64_t{1} << 40));
  EXPECT_EQ(values, (Ints{752595690692, 108744157686, 291964244179, 650496783975}));
}

TEST(RandomState, DistributionsMatchNumpy) {
  RandomState random(1234);
  Ints values;
  for (int i = 0; i < 8; ++i) values.push_back(random.geometric(0.2));
  EXPECT_EQ(values, (Ints{1, 5, 3, 7, 7, 2, 2, 8}));
  // binomial(1, p) twelve times, and one random_sample() that depends on the number of draws.
  const std::array<std::pair<double, Ints>, 4> throws{{{0.5, {0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1}},
                                                       {0.3, {0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0}},
                                                       {0.9, {1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1}},
                                                       {1.0, Ints(12, 1)}}};
  for (const auto& [p, expected] : throws) {
    RandomState coin(1234);
    values.clear();
    for (int i = 0; i < 12; ++i) values.push_back(coin.bernoulli(p) ? 1 : 0);
    EXPECT_EQ(values, expected) << p;
    EXPECT_EQ(coin.random_sample(), 0.6834629351721363) << p;
  }
  EXPECT_FALSE(RandomState(1234).bernoulli(0));
  RandomState again(1234);  // choice([1, 2, 3], p=[6/11, 3/11, 2/11])
  values.clear();
  for (int i = 0; i < 8; ++i)
    values.push_back(static_cast<std::int64_t>(again.choice(std::array{6.0 / 11, 3.0 / 11, 2.0 / 11})) + 1);
  EXPECT_EQ(values, (Ints{1, 2, 1, 2, 2, 1, 1, 2}));
}

TEST(Pcg64, BoundedIntegersMatchNumpy) {
  Pcg64 random(0);
  Ints values;
  for (int i = 0; i < 8; ++i) values.push_back(random.integers(1, 4096));
  EXPECT_EQ(values, (Ints{3484, 2609, 2094, 1105, 1261, 168, 309, 68}));
  Pcg64 rejecting(0);  // a range of three quarters of 2^32 rejects every fourth draw
  std::uint64_t sum = 0;
  for (int i = 0; i < 1000; ++i)
    sum += static_cast<std::uint32_t>(rejecting.integers(-2147483648, 1073741824)) ^ (1U << 31);
  EXPECT_EQ(sum, 1679183723551U);
}

TEST(TorchRandperm, MatchesTorch) {
  EXPECT_EQ(torch_randperm(20, 0),
            (Ints{4, 5, 13, 19, 7, 14, 3, 6, 9, 17, 11, 2, 16, 18, 10, 12, 15, 8, 1, 0}));
  EXPECT_EQ(torch_randperm(12, 3), (Ints{10, 9, 1, 6, 4, 11, 3, 7, 2, 0, 8, 5}));
  EXPECT_TRUE(torch_randperm(0, 0).empty());
}

// Total 20, consumed 4, micro-batch size 2, data-parallel rank 1 of 2.
TEST(Sampler, MatchesMegatronsSamplers) {
  Ints run(20);
  std::iota(run.begin(), run.end(), 0);
  Ints rows;
  const std::span<const std::int64_t> rest = std::span<const std::int64_t>(run).subspan(4);
  for (int k = 0; k < 4; ++k)
    for (const std::int64_t sample : micro_batch_of(rest, k, 1, 2, 2)) rows.push_back(sample);
  EXPECT_EQ(rows, (Ints{6, 7, 10, 11, 14, 15, 18, 19}));
  EXPECT_EQ(sharded_cyclic_order(20, 4, 2, 1, 2), (Ints{17, 15, 13, 19, 10, 18, 16, 12}));
  const CyclicOrder cyclic(20, 4);
  const Ints order = cyclic.order(cyclic.epoch(4));
  rows.clear();  // Megatron distributes the unsharded order to the ranks one sample at a time
  for (std::size_t i = 4 + 1; i < 20; i += 2) rows.push_back(order[i]);
  EXPECT_EQ(rows, (Ints{14, 6, 17, 2, 18, 12, 8, 0}));
  EXPECT_EQ(CyclicOrder(23, 4).epoch(20), 1);
  EXPECT_EQ(CyclicOrder(23, 4).order(1), torch_randperm(20, 1));
}

/// Global batches of 4 samples, each in ascending order.
std::vector<Ints> batches_of_four(const Ints& order) {
  std::vector<Ints> batches;
  for (std::size_t i = 0; i + 4 <= order.size(); i += 4) {
    batches.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(i),
                         order.begin() + static_cast<std::ptrdiff_t>(i + 4));
    std::sort(batches.back().begin(), batches.back().end());
  }
  return batches;
}

// Megatron's unsharded sampler with torch's randperm, micro-batch size 2, 2 data-parallel ranks, epoch 0: the
// samples of both ranks in each step. With steps of 4, 21 samples leave one over, less than a micro-batch; 22
// leave two.
TEST(Sampler, CyclicMatchesMegatronIfTheRemainderIsLessThanAMicroBatch) {
  const std::vector<Ints> of_21{
      {4, 5, 13, 19}, {3, 6, 7, 14}, {2, 9, 11, 17}, {10, 12, 16, 18}, {0, 1, 8, 15}};
  EXPECT_EQ(batches_of_four(CyclicOrder(21, 4).order(0)), of_21);
  const Ints of_22_first{3, 4, 10, 15};
  const Ints all_22 = torch_randperm(22, 0);
  EXPECT_EQ(batches_of_four(all_22)[0], of_22_first);
  EXPECT_EQ(batches_of_four(CyclicOrder(22, 4).order(0)), of_21);
}

}  // namespace
}  // namespace colonnade::data
