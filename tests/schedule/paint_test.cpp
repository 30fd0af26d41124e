// Drawings show every action once, at its time.
#include <gtest/gtest.h>

#include <string>

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {
namespace {

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Paint, TextRowsAreAlignedInTime) {
  const Schedule s = one_f_one_b(2, 3);
  EXPECT_EQ(render_text(simulate(s, {1, 2, 0}), s),
            "rank 0   |F0 F1       B0    F2 B1       B2\n"
            "rank 1   |   F0 B0    F1 B1    F2 B2\n");
}

TEST(Paint, LaterChunksHaveALetter) {
  const Schedule s = interleaved(2, 2, 2, 2);
  const std::string text = render_text(simulate(s, {1, 1, 0}), s);
  EXPECT_NE(text.find("F0b"), std::string::npos) << text;
  EXPECT_NE(text.find(" B1"), std::string::npos) << text;
}

TEST(Paint, SvgHasEveryActionAndNeedsNoNetwork) {
  const Schedule s = interleaved(3, 2, 6, 3);
  const std::string svg = render_svg(simulate(s, {}), s);
  EXPECT_EQ(count(svg, "<title>forward"), 3 * 2 * 6);
  EXPECT_EQ(count(svg, "<title>backward"), 3 * 2 * 6);
  EXPECT_EQ(count(svg, "class=\"row\""), 3);
  EXPECT_EQ(count(svg, ">forward 1<"), 1);  // legend
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(count(svg, "http"), 1);  // the XML namespace only
  EXPECT_EQ(svg.rfind("<svg", 0), 0U);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

TEST(Paint, InputAndWeightGradientsDiffer) {
  const Schedule s = zb_h1(2, 3);
  const Timeline t = simulate(s, {});
  EXPECT_EQ(render_text(t, s),
            "rank 0   |F0 F1    B0 W0 F2 B1 W1 B2 W2\n"
            "rank 1   |   F0 B0 F1 B1 W0 F2 B2 W1 W2\n");
  const std::string svg = render_svg(t, s);
  EXPECT_EQ(count(svg, "<title>forward"), 2 * 3);
  EXPECT_EQ(count(svg, "<title>input gradient"), 2 * 3);
  EXPECT_EQ(count(svg, "<title>weight gradient"), 2 * 3);
  EXPECT_EQ(count(svg, "<title>backward"), 0);
  // Boxes and one legend entry; each kind has its own color.
  for (const char* color : {"hsl(212,", "hsl(176,", "hsl(36,"})
    EXPECT_EQ(count(svg, color), 2 * 3 + 1) << color;
  EXPECT_EQ(count(svg, "hsl(142,"), 0);
}

TEST(Paint, VSchedulesShowBothChunksOfARank) {
  const Schedule s = dualpipe_v(2, 4);
  const std::string text = render_text(simulate(s, {}), s), svg = render_svg(simulate(s, {}), s);
  EXPECT_NE(text.find("F0b"), std::string::npos) << text;
  EXPECT_NE(text.find("W3b"), std::string::npos) << text;
  EXPECT_EQ(count(svg, "<title>forward"), 2 * 2 * 4);
  EXPECT_EQ(count(svg, "<title>backward") + count(svg, "<title>input gradient"), 2 * 2 * 4);
  EXPECT_EQ(count(svg, "<title>input gradient"), count(svg, "<title>weight gradient"));
  EXPECT_GT(count(svg, "<title>backward"), 0);
  EXPECT_EQ(count(svg, ">weight gradient 1<"), 1);  // legend
}

}  // namespace
}  // namespace colonnade::schedule
