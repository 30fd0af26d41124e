// Bar lengths match the bytes.
#include "colonnade/cost/memory_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace colonnade::cost {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kGiB = 1 << 30;

/// Peaks of 8 GiB and 4 GiB.
std::vector<StageMemory> two_ranks() {
  StageMemory full{.parameters = kGiB, .gradients = 2 * kGiB, .optimizer = 3 * kGiB, .activations = kGiB};
  full.workspace = kGiB;
  StageMemory half{.parameters = kGiB, .gradients = kGiB, .optimizer = 2 * kGiB};
  half.evaluation = 2 * kGiB;
  return {full, half};
}

TEST(MemoryPicture, BarLengthsMatchTheParts) {
  EXPECT_EQ(memory_bars(two_ranks()),
            "rank 0   |" + std::string(8, 'w') + std::string(16, 'g') + std::string(24, 'o') +
                std::string(8, 'a') + std::string(8, 'x') + "| 8.00 GiB\n" + "rank 1   |" +
                std::string(8, 'w') + std::string(8, 'g') + std::string(16, 'o') + std::string(32, ' ') +
                "| 4.00 GiB\n" + "w weights, g gradients, o optimizer, a activations, x workspace\n");
}

TEST(MemoryPicture, RoundingOfSmallPartsDoesNotAddUp) {
  std::vector<StageMemory> plan = two_ranks();
  plan[0].rotary_tables = kGiB / 1000;
  const std::string bars = memory_bars(plan);
  EXPECT_THAT(bars, HasSubstr(std::string(8, 'x') + "| 8.00 GiB"));
  EXPECT_THAT(bars, HasSubstr("r rotary embeddings"));
}

TEST(MemoryPicture, SvgContainsEveryPartAndPhaseOfEveryRank) {
  const std::string svg = memory_svg(two_ranks());
  for (const char* part : {"<title>weights 1.00 GiB</title>", "<title>gradients 2.00 GiB</title>",
                           "<title>workspace 1.00 GiB</title>", "<title>start-up 6.00 GiB</title>",
                           "<title>evaluation 6.00 GiB</title>", ">rank 1<", ">8.00 GiB<"})
    EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_THAT(svg, HasSubstr("width=\"270.0\" height=\"24\" fill=\"#85b6b2\"")) << "3 of 8 of 720";
  EXPECT_THAT(svg, Not(HasSubstr("rotary")));
}

}  // namespace
}  // namespace colonnade::cost
