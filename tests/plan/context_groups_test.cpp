// Ranks for sequences of different lengths: every sequence once, none too large for its ranks, all ranks
// busy, and less work on the busiest one than with one size for all.
#include "colonnade/plan/context_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "colonnade/base/error.h"

namespace colonnade::plan {
namespace {

/// Lengths around exp(7.5) tokens with a long tail, cut at 131072: as documents of the web and a few books.
std::vector<std::int64_t> long_tailed(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1.0p-53; };
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
    lengths.push_back(
        std::clamp<std::int64_t>(static_cast<std::int64_t>(std::exp(7.5 + 1.5 * normal)), 64, 131072));
  }
  return lengths;
}

double even(const std::vector<std::int64_t>& lengths, int ranks) {
  double pairs = 0;
  for (const std::int64_t length : lengths) pairs += attention_pairs(length);
  return pairs / ranks;
}

TEST(ContextGroups, HoldEverySequenceOnceOnEnoughRanks) {
  constexpr int kRanks = 32;
  constexpr std::int64_t kTokens = 8192;
  const auto lengths = long_tailed(3, 300);
  for (const ContextGroups& groups :
       {context_groups(lengths, kRanks, kTokens), equal_context_groups(lengths, kRanks, kTokens)}) {
    std::vector<int> seen(lengths.size(), 0);
    std::vector<double> work(kRanks, 0);  // without waits
    for (const SequenceShare& share : groups.shares) {
      ++seen[share.sequence];
      EXPECT_EQ(share.first % share.ranks, 0);
      EXPECT_LE(share.first + share.ranks, kRanks);
      EXPECT_LE(lengths[share.sequence], share.ranks * kTokens);
      for (int r = share.first; r < share.first + share.ranks; ++r)
        work[static_cast<std::size_t>(r)] += attention_pairs(lengths[share.sequence]) / share.ranks;
    }
    EXPECT_EQ(seen, std::vector<int>(lengths.size(), 1));
    for (std::size_t r = 0; r < work.size(); ++r)
      EXPECT_NEAR(work[r], groups.work[r], 1e-9 * work[r]) << "nobody waits for a group";
  }
}

TEST(ContextGroups, GiveLongSequencesMoreRanksAndShortOnesOne) {
  const auto groups = context_groups({100, 64000, 100, 16000}, 8, 8192);
  ASSERT_EQ(groups.shares.size(), 4);
  EXPECT_EQ(groups.shares[0].sequence, 1);
  EXPECT_EQ(groups.shares[0].ranks, 8);
  EXPECT_EQ(groups.shares[1].sequence, 3);
  EXPECT_EQ(groups.shares[1].ranks, 2);
  EXPECT_EQ(groups.shares[2].ranks, 1);
  EXPECT_NE(groups.shares[2].first, groups.shares[3].first);
  EXPECT_EQ(context_groups({8192}, 8, 8192).shares[0].ranks, 8) << "one alone is divided for its work";
}

// The count that the design promises: at least 1.40 times less attention on the busiest rank.
TEST(ContextGroups, LeaveTheBusiestRankFarLessThanOneSizeForAll) {
  double changing = 0, equal = 0, ideal = 0;
  for (std::uint64_t batch = 0; batch < 20; ++batch) {
    const auto lengths = long_tailed(batch, 512);
    changing += context_groups(lengths, 64, 16384).longest();
    equal += equal_context_groups(lengths, 64, 16384).longest();
    ideal += even(lengths, 64);
  }
  EXPECT_GT(equal / changing, 1.40);
  EXPECT_LT(changing / ideal, 1.10);
  RecordProperty("equal_over_changing", std::to_string(equal / changing));
}

TEST(ContextGroups, RefuseWhatRanksCannotHold) {
  EXPECT_THROW(context_groups({100000}, 8, 8192), Error);
  EXPECT_THROW(context_groups({100}, 6, 8192), Error);
  EXPECT_TRUE(context_groups({}, 8, 8192).shares.empty());
}

}  // namespace
}  // namespace colonnade::plan
