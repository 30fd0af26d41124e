// Philox against known answers, and its uniform distribution.
#include "colonnade/base/philox.h"

#include <gtest/gtest.h>

namespace colonnade {
namespace {

// Known-answer vectors of the Random123 distribution (philox4x32, 10 rounds).
TEST(Philox, MatchesTheRandom123KnownAnswers) {
  EXPECT_EQ((Philox{0}(0, 0)),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ((Philox{~0ULL}(~0ULL, ~0ULL)),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, UniformNumbersCoverTheUnitInterval) {
  EXPECT_EQ(uniform(0), 0.0F);
  EXPECT_LT(uniform(~0U), 1.0F);
  const Philox draw{stable_hash("a name")};
  double sum = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) sum += uniform(draw(static_cast<std::uint64_t>(i))[2]);
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
}

}  // namespace
}  // namespace colonnade
