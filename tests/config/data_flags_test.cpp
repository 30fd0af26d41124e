// Parsing of --split and data paths, and their errors.
#include "colonnade/config/data_flags.h"

#include <gtest/gtest.h>

namespace colonnade::config {
namespace {

using Numbers = std::vector<double>;
using Words = std::vector<std::string>;

TEST(SplitWeights, AreOneToThreeNumbersWithAnySeparators) {
  EXPECT_EQ(parse_split("969, 30, 1").parts, (Numbers{969, 30, 1}));
  EXPECT_EQ(parse_split("\"1\"").parts, Numbers{1});
  for (const char* text : {"'99,1.5,0'", "99/1.5/0", "99:1.5:0", "99 1.5 0", "[99, 1.5, 0]", "99-1.5-0",
                           "99 - 1.5 - 0", "99.,1.5,.0,"})
    EXPECT_EQ(parse_split(text).parts, (Numbers{99, 1.5, 0})) << text;
}

TEST(SplitWeights, LettersAndSignsAreErrors) {
  for (const auto& [text, fault] : std::vector<std::pair<std::string, std::string>>{
           {"", "no number"},
           {" ,/", "no number"},
           {"1,2,x", "'x'"},
           {"1,-2", "'-2'"},
           {"-1", "'-1'"},
           {"1--2", "'1--2'"},
           {"+1", "'+1'"},
           {"inf,1", "'inf'"},
           {"1,nan", "'nan'"},
           {"1e3,1", "'1e3'"},
           {"1.2.3", "'1.2.3'"},
           {"1,.", "'.'"},
           {"1,2,3,4", "4 numbers"},
           {"0,0", "the sum 0"},
       }) {
    EXPECT_EQ(parse_split(text).fault, fault) << text;
    EXPECT_TRUE(parse_split(text).parts.empty()) << text;
  }
}

TEST(DataPaths, ArePairsOrPrefixes) {
  EXPECT_TRUE(is_weighted_blend(Words{"1", "a", "0.5", "b"}));
  EXPECT_FALSE(is_weighted_blend(Words{"a", "b"}));
  EXPECT_FALSE(is_weighted_blend(Words{}));
  for (const Words& good : {Words{}, Words{"a"}, Words{"a", "b"}, Words{"1", "a"}, Words{"1", "2"}})
    EXPECT_FALSE(data_paths_error(good));
  for (const Words& mixed :
       {Words{"0.3", "a", "b"}, Words{"a", "0.3"}, Words{"1", "a", "b", "c"}, Words{"7"}})
    EXPECT_EQ(data_paths_error(mixed)->rule, "weights and prefixes must come in pairs");
  for (const Words& weightless : {Words{"0", "a"}, Words{"1", "a", "-1", "b"}, Words{"inf", "a"}})
    EXPECT_EQ(data_paths_error(weightless)->rule, "weights must be above 0");
}

TEST(NumberOf, AcceptsWholeWordsOnly) {
  EXPECT_EQ(number_of("1e2"), 100.0);
  for (const char* word : {"", "3x", " 3", "a"}) EXPECT_FALSE(number_of(word)) << word;
}

}  // namespace
}  // namespace colonnade::config
