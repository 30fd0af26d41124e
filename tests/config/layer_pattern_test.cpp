// Layer patterns: Python list expressions and frequencies.
#include "colonnade/config/layer_pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace colonnade::config {
namespace {

using Numbers = std::vector<std::int64_t>;
using Mask = std::vector<bool>;

TEST(LayerPattern, ListExpressionsEvaluateAsInPython) {
  EXPECT_EQ(parse_int_list("[1,0]"), (Numbers{1, 0}));
  EXPECT_EQ(parse_int_list("([0]*3+[1]*2)"), (Numbers{0, 0, 0, 1, 1}));
  EXPECT_EQ(parse_int_list("([0, 1] * 2 + [1]) * 2"), (Numbers{0, 1, 0, 1, 1, 0, 1, 0, 1, 1}));
  EXPECT_EQ(parse_int_list("2*[1]"), (Numbers{1, 1}));
  EXPECT_EQ(parse_int_list("[1]*(1+2)"), (Numbers{1, 1, 1}));
  EXPECT_EQ(parse_int_list("[1]*-1"), Numbers{});
  EXPECT_EQ(parse_int_list("[1,0,]"), (Numbers{1, 0}));
  EXPECT_EQ(parse_int_list("[]"), Numbers{});
  EXPECT_EQ(parse_int_list("1,0, 1"), (Numbers{1, 0, 1})) << "as a YAML list";
}

TEST(LayerPattern, MalformedListsAreRejected) {
  for (const char* text :
       {"", "3", "[1", "1]", "[1]+2", "[1]*[1]", "[1]]", "[[1]]", "[,]", "[1 0", "a", ",1", "1,[0]", "1],[0",
        "[1]*", "[1]*9999999999", "[1]*999999999999999999999", "__import__('os')", "[1]**2"})
    EXPECT_EQ(parse_int_list(text), std::nullopt) << text;
  EXPECT_EQ(parse_int_list(std::string(100'000, '(')), std::nullopt);
  EXPECT_EQ(parse_int_list(std::string(100'000, '[')), std::nullopt);
}

TEST(LayerPattern, FrequencySelectsEveryNthLayer) {
  EXPECT_EQ(expand_layer_freq("1", 3), (Mask{true, true, true}));
  EXPECT_EQ(expand_layer_freq("2", 5), (Mask{true, false, true, false, true}));
  EXPECT_EQ(expand_layer_freq("([0]*1+[1]*2)", 3), (Mask{false, true, true}));
  EXPECT_EQ(expand_layer_freq("0", 3), std::nullopt);
  EXPECT_EQ(expand_layer_freq("-2", 3), std::nullopt);
  EXPECT_EQ(expand_layer_freq("[1,0]", 3), std::nullopt) << "another length";
  EXPECT_EQ(expand_layer_freq("[1,2]", 2), std::nullopt) << "neither 0 nor 1";
}

TEST(LayerPattern, NoRopeFrequencyLeavesOutEveryNthLayer) {
  EXPECT_EQ(expand_no_rope_freq("4", 4), (Mask{true, true, true, false}));
  EXPECT_EQ(expand_no_rope_freq("2", 4), (Mask{true, false, true, false}));
  EXPECT_EQ(expand_no_rope_freq("([0]*2+[1])", 3), (Mask{true, true, false}));
  EXPECT_EQ(expand_no_rope_freq("3", 4), std::nullopt) << "no divisor";
  EXPECT_EQ(expand_no_rope_freq("[1,0]", 3), std::nullopt) << "another length";
  EXPECT_EQ(expand_no_rope_freq("", 3), std::nullopt);
}

TEST(LayerPattern, ReadsListsOfNumbers) {
  EXPECT_EQ(parse_numbers("[1.5, 2,3e-1]"), (std::vector<double>{1.5, 2, 0.3}));
  for (const char* text : {"", "1", "[]", "[1,]", "[,1]", "[1 2]", "[x]", "[1,nan]", "1,2]"})
    EXPECT_EQ(parse_numbers(text), std::nullopt) << text;
}

}  // namespace
}  // namespace colonnade::config
