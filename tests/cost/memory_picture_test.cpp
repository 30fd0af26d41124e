// Bars are as long as what they stand for.
#include "colonnade/cost/memory_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace colonnade::cost {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kGiB = 1 << 30;

/// 8 GiB and 4 GiB at the fullest moment.
std::vector<StageMemory> two_ranks() {
  StageMemory full{.parameters = kGiB, .gradients = 2 * kGiB, .optimizer = 3 * kGiB, .activations = kGiB};
  full.working = kGiB;
  StageMemory half{.parameters = kGiB, .gradients = kGiB, .optimizer = 2 * kGiB};
  half.evaluation = 2 * kGiB;
  return {full, half};
}

TEST(MemoryPicture, BarsAreAsLongAsTheirParts) {
  EXPECT_EQ(memory_bars(two_ranks()),
            "rank 0   |" + std::string(8, 'w') + std::string(16, 'g') + std::string(24, 'o') +
                std::string(8, 'a') + std::string(8, 'x') + "| 8.00 GiB\n" + "rank 1   |" +
                std::string(8, 'w') + std::string(8, 'g') + std::string(16, 'o') + std::string(32, ' ') +
                "| 4.00 GiB\n" + "w weights, g gradients, o optimizer, a activations, x working\n");
}

TEST(MemoryPicture, SmallPartsDoNotAddUpToMore) {
  std::vector<StageMemory> plan = two_ranks();
  plan[0].tables = kGiB / 1000;
  const std::string bars = memory_bars(plan);
  EXPECT_THAT(bars, HasSubstr(std::string(8, 'x') + "| 8.00 GiB"));
  EXPECT_THAT(bars, HasSubstr("t tables"));
}

TEST(MemoryPicture, SvgHasEveryPartAndPhaseOfEveryRank) {
  const std::string svg = memory_svg(two_ranks());
  for (const char* part : {"<title>weights 1.00 GiB</title>", "<title>gradients 2.00 GiB</title>",
                           "<title>working 1.00 GiB</title>", "<title>start-up 6.00 GiB</title>",
                           "<title>evaluation 6.00 GiB</title>", ">rank 1<", ">8.00 GiB<"})
    EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_THAT(svg, HasSubstr("width=\"270.0\" height=\"24\" fill=\"#85b6b2\"")) << "3 of 8 of 720";
  EXPECT_THAT(svg, Not(HasSubstr("tables")));
}

}  // namespace
}  // namespace colonnade::cost
