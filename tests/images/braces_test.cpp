// Brace expansion, and the limit on the number of words.
#include "colonnade/images/braces.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "colonnade/base/error.h"
#include "support/files.h"

namespace colonnade::images {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> words(const std::string& pattern) {
  WordBudget budget;
  return expand_braces(pattern, budget);
}

std::string error_of(const std::string& pattern) {
  return test::message_of<ConfigError>([&] { (void)words(pattern); });
}

TEST(Braces, MatchBraceexpand) {
  EXPECT_THAT(words("s-{08..11}.tar"), ElementsAre("s-08.tar", "s-09.tar", "s-10.tar", "s-11.tar"));
  EXPECT_THAT(words("{3..1}"), ElementsAre("3", "2", "1"));
  EXPECT_THAT(words("{a,b{1..2}}{x,y}"), ElementsAre("ax", "ay", "b1x", "b1y", "b2x", "b2y"));
  EXPECT_THAT(words("{,a}b"), ElementsAre("b", "ab"));
  EXPECT_THAT(words("plain"), ElementsAre("plain"));
  EXPECT_THAT(words(""), ElementsAre(""));
  EXPECT_EQ(words("{0..999999}").size(), 1'000'000U);
}

TEST(Braces, RejectMalformedPatterns) {
  EXPECT_THAT(error_of("a{1..2"), HasSubstr("each { must have its }"));
  EXPECT_THAT(error_of(std::string(17, '{') + "a" + std::string(17, '}')), HasSubstr("at most 16 deep"));
  EXPECT_THAT(error_of("{" + std::string(5000, ',')), HasSubstr("4096"));
  EXPECT_THAT(error_of(std::string(100'000, 'a')), HasSubstr("got 100000"));
}

TEST(Braces, RejectTooManyWordsBeforeExpanding) {
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  std::string many, nested = "{a";
  for (int i = 0; i < 300; ++i) many += "{1..999999}";
  for (int i = 0; i < 300; ++i) nested += ",{1..999999}";
  const std::string long_words = "{1..999999}" + std::string(3000, 'x');
  for (const std::string& pattern :
       {std::string("{1..1000001}"), std::string("{1..9999}{1..9999}"), many, nested + "}", long_words})
    EXPECT_THAT(error_of(pattern), HasSubstr("at most 1000000 words of 256 MiB; got more"));
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 50'000) << "KiB";
}

TEST(Braces, PatternsOfACallShareABudget) {
  WordBudget budget;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(expand_braces("{1..400000}", budget).size(), 400'000U);
  EXPECT_EQ(budget.words, 200'000U);
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)expand_braces("{1..200001}", budget); }),
              HasSubstr("got more"));
  EXPECT_EQ(expand_braces("{1..200000}", budget).size(), 200'000U);
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)expand_braces("plain", budget); }),
              HasSubstr("got more"));
}

}  // namespace
}  // namespace colonnade::images
