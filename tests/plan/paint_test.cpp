// The pictures show every action once, at its time.
#include <gtest/gtest.h>

#include <string>

#include "colonnade/plan/program.h"

namespace colonnade::plan {
namespace {

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Paint, TextRowsAreAlignedInTime) {
  const Schedule s = one_f_one_b(2, 3);
  EXPECT_EQ(paint_text(simulate(s, {1, 2, 0}), s),
            "rank 0   |F0 F1       B0    F2 B1       B2\n"
            "rank 1   |   F0 B0    F1 B1    F2 B2\n");
}

TEST(Paint, LaterChunksCarryALetter) {
  const Schedule s = interleaved(2, 2, 2, 2);
  const std::string text = paint_text(simulate(s, {1, 1, 0}), s);
  EXPECT_NE(text.find("F0b"), std::string::npos) << text;
  EXPECT_NE(text.find(" B1"), std::string::npos) << text;
}

TEST(Paint, SvgHoldsEveryActionAndNeedsNoNetwork) {
  const Schedule s = interleaved(3, 2, 6, 3);
  const std::string svg = paint_svg(simulate(s, {}), s);
  EXPECT_EQ(count(svg, "<title>forward"), 3 * 2 * 6);
  EXPECT_EQ(count(svg, "<title>backward"), 3 * 2 * 6);
  EXPECT_EQ(count(svg, "class=\"row\""), 3);
  EXPECT_EQ(count(svg, ">forward 1<"), 1);  // legend
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(count(svg, "http"), 1);  // the name space only
  EXPECT_EQ(svg.rfind("<svg", 0), 0U);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

}  // namespace
}  // namespace colonnade::plan
