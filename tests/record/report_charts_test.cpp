// Charts of the report: positions of points, kept peaks, round ticks.
#include "colonnade/record/report_charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace colonnade::record {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Charts, PlacePointsCorrectly) {
  const std::string svg =
      draw_chart({.title = "t", .series = {{"a", 1, {{0, 0}, {10, 100}}}}, .from_zero = true});
  EXPECT_THAT(svg, HasSubstr("points='58.0,206.0 548.0,19.3 '"));  // 5% margin above the highest
}

TEST(Charts, LeaveOutNonFinitePoints) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = draw_chart({.title = "t", .series = {{"a", 1, {{0, 1}, {1, nan}, {2, 3}}}}});
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(draw_chart({.title = "t", .series = {{"a", 1, {{0, nan}}}}}), HasSubstr("nothing recorded"));
}

TEST(Charts, ThinOutKeepsPeaks) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 10000; ++i) points.emplace_back(i, i == 5678 ? 100.0 : std::sin(i));
  const auto kept = thin_out(points, 300);
  EXPECT_LE(kept.size(), 600u);
  EXPECT_THAT(kept, testing::Contains(std::pair<double, double>(5678, 100)));
  EXPECT_EQ(kept.back(), points.back());
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
}

TEST(Charts, TicksAreRound) {
  EXPECT_THAT(round_ticks(0, 10, 5), testing::ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(round_ticks(4.5, 7.1, 5), testing::ElementsAre(5, 6, 7));
  EXPECT_TRUE(round_ticks(1, 1, 5).empty());
}

}  // namespace
}  // namespace colonnade::record
