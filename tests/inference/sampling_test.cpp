// Sampling of the next token: distribution, top-k, top-p, edge cases.
#include "colonnade/inference/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "colonnade/base/error.h"

namespace colonnade::inference {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Logits of these probabilities, up to a constant.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3.0));
  return logits;
}

const std::vector<float> kLogits = logits_of({0.1, 0.4, 0.2, 0.25, 0.05});

std::vector<std::int64_t> tokens(const std::vector<Candidate>& all) {
  std::vector<std::int64_t> ids;
  for (const Candidate& c : all) ids.push_back(c.token);
  return ids;
}

TEST(Sampling, GreedyTakesTheLargestLogitThenTheLowestId) {
  for (const Sampling& greedy : {Sampling{.temperature = 0}, Sampling{.top_k = 1}})
    for (std::int64_t position = 0; position < 20; ++position)
      EXPECT_EQ(sample(kLogits, greedy, position), 1);
  EXPECT_EQ(sample(std::vector<float>{1, 7, 7, 2}, {.temperature = 0}, 5), 1);
}

TEST(Sampling, TemperatureDividesLogits) {
  const auto all = candidates(kLogits, {.temperature = 0.5});
  const double sum = 0.01 + 0.16 + 0.04 + 0.0625 + 0.0025;  // squares of the probabilities
  EXPECT_NEAR(all[0].probability, 0.16 / sum, 1e-6);
  EXPECT_NEAR(all[4].probability, 0.0025 / sum, 1e-6);
}

TEST(Sampling, TopKKeepsTheLargest) {
  EXPECT_THAT(tokens(candidates(kLogits, {.top_k = 3})), ElementsAre(1, 3, 2));
  EXPECT_EQ(candidates(kLogits, {.top_k = 100}).size(), 5U);
  EXPECT_NEAR(candidates(kLogits, {.top_k = 2})[0].probability, 0.4 / 0.65, 1e-6);
}

TEST(Sampling, TopPKeepsTokensUntilTheProbabilityIsReached) {
  EXPECT_THAT(tokens(candidates(kLogits, {.top_p = 0.3})), ElementsAre(1));
  EXPECT_THAT(tokens(candidates(kLogits, {.top_p = 0.6})), ElementsAre(1, 3));
  EXPECT_THAT(tokens(candidates(kLogits, {.top_p = 0.7})), ElementsAre(1, 3, 2));
  EXPECT_EQ(candidates(kLogits, {.top_p = 1}).size(), 5U);
}

TEST(Sampling, TopPAppliesWithinTopK) {
  // 0.4 / 0.65 = 0.615 within the top 2 reaches 0.6; 0.4 of all tokens does not.
  EXPECT_THAT(tokens(candidates(kLogits, {.top_k = 2, .top_p = 0.6})), ElementsAre(1));
}

TEST(Sampling, DrawsFollowTheDistribution) {
  constexpr int kDraws = 20000;
  std::vector<int> count(5, 0);
  for (std::int64_t position = 0; position < kDraws; ++position)
    ++count[static_cast<std::size_t>(sample(kLogits, {.seed = 7}, position))];
  const double expected[] = {0.1, 0.4, 0.2, 0.25, 0.05};
  double chi2 = 0;
  for (std::size_t i = 0; i < 5; ++i)
    chi2 += std::pow(count[i] - kDraws * expected[i], 2) / (kDraws * expected[i]);
  EXPECT_LT(chi2, 18.5);  // 4 degrees of freedom: exceeded once in 1000 seeds
}

TEST(Sampling, DrawDependsOnSeedAndPositionOnly) {
  EXPECT_EQ(draw(1, 10), draw(1, 10));
  EXPECT_NE(draw(1, 10), draw(1, 11));
  EXPECT_NE(draw(1, 10), draw(2, 10));
  for (std::int64_t position = 0; position < 1000; ++position) {
    EXPECT_GE(draw(3, position), 0);
    EXPECT_LT(draw(3, position), 1);
  }
}

TEST(Sampling, NeverSamplesMaskedTokens) {
  const float kNever = -std::numeric_limits<float>::infinity();
  for (std::int64_t position = 0; position < 200; ++position)
    EXPECT_EQ(sample(std::vector<float>{kNever, 2, kNever}, {}, position), 1);
}

TEST(Sampling, RejectsNonFiniteLogits) {
  EXPECT_THROW(candidates(std::vector<float>{1, NAN}, {}), Error);
  EXPECT_THROW(candidates(std::vector<float>{1, INFINITY}, {}), Error);
  EXPECT_THROW(candidates(std::vector<float>{-INFINITY, -INFINITY}, {}), Error);
}

TEST(Sampling, ReportsEveryInvalidSetting) {
  EXPECT_TRUE(faults_of({}).empty());
  EXPECT_THAT(faults_of({.temperature = -1, .top_k = -2, .top_p = 1.5}),
              ElementsAre(HasSubstr("--temperature"), HasSubstr("--top-k"), HasSubstr("--top-p")));
  EXPECT_EQ(faults_of({.temperature = NAN}).size(), 1U);
}

TEST(Sampling, RepetitionPenaltyLowersLogitsOfSeenTokens) {
  std::vector<float> logits = {2, -2, 4, 0, 1};
  penalize(logits, std::vector<std::int32_t>{0, 1, 3, 0, -1, 9}, 2);
  EXPECT_EQ(logits, (std::vector<float>{1, -4, 4, 0, 1}));
  EXPECT_EQ(faults_of({.repetition_penalty = 0}).size(), 1U);
}

}  // namespace
}  // namespace colonnade::inference
