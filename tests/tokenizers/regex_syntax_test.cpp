// The supported regular expressions and their translation for PCRE2. The expected spans were compared with
// those of Oniguruma in Hugging Face tokenizers.
#include "colonnade/tokenizers/regex_syntax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/regex.h"
#include "support/files.h"

namespace colonnade::tokenizers {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> parts(const char* expression, const std::string& text) {
  std::vector<Span> spans;
  Regex(expression, "test").find(text, spans);
  std::vector<std::string> result;
  for (const Span& span : spans)
    result.push_back((span.matched ? "" : "-") + text.substr(span.begin, span.end - span.begin));
  return result;
}

constexpr const char* kUnsupported[] = {"",
                                        "a{2}?",
                                        "a{2}+",
                                        "a{,2}",
                                        "a{",
                                        "a{2,1}",
                                        "a**",
                                        "a{2}{2}",
                                        "*a",
                                        "(?:|+)",
                                        "(a",
                                        "a)",
                                        "(?=a)*",
                                        "^*",
                                        "(?:a*)*",
                                        "(?:a?|b){2}",
                                        "(?m:a)",
                                        "(?#a)",
                                        "(?<n>a)",
                                        "(*FAIL)",
                                        "\\pL",
                                        "[\\pL]",
                                        "\\p{L&}",
                                        "\\P{^L}",
                                        "\\p{Latn}",
                                        "\\p{scx:Han}",
                                        "\\p{Han",
                                        "\\x80",
                                        "[\\x80-\\xff]",
                                        "\\x{}",
                                        "\\x{110000000}",
                                        "\\x4",
                                        "\\u12",
                                        "\\h",
                                        "\\A",
                                        "\\z",
                                        "\\Z",
                                        "\\G",
                                        "\\K",
                                        "\\R",
                                        "\\X",
                                        "\\N",
                                        "\\Q",
                                        "\\1",
                                        "\\0",
                                        "\\cA",
                                        "\\",
                                        "\\\xC3\xA9",
                                        "[]",
                                        "[^]",
                                        "[a",
                                        "[a&&]",
                                        "[&&a]",
                                        "[a&&-b]",
                                        "[a-[b]]",
                                        "[[a]",
                                        "[a[]]",
                                        "(?i:[a&&b])",
                                        "(?i:[a[b]])",
                                        "(?i:[[:alpha:]])",
                                        "(?i:[\\W])",
                                        "[a-\\W]",
                                        "[\\W-a]",
                                        "[[:^han:]]",
                                        "\\p{Letters}",
                                        "(?i)ss",
                                        "(?i)\\w",
                                        "(?-i:a)",
                                        "a(?i)*",
                                        "(?m)a",
                                        "\\b*",
                                        "(?i:\\b)",
                                        "[a-c-e]",
                                        "[\\s-a]",
                                        "[a-\\s]",
                                        "[--a]",
                                        "(?i:ss)",
                                        "(?i:Fi)",
                                        "(?i:s(?:T))",
                                        "(?i:s)(?i:s)",
                                        "(?i:s+)",
                                        "(?i:[st]t)",
                                        "(?i:s[st])",
                                        "(?i:[^a])",
                                        "(?i:\\p{Lu})",
                                        "(?i:\\w)",
                                        "(?i:\xC3\xA9)",
                                        "(?i:[\xC3\xA9])"};

TEST(RegexSyntax, RejectsConstructsThatAreReadDifferently) {
  for (const char* regex : kUnsupported)
    EXPECT_THAT(test::message_of<DataError>([&] { (void)regex_for_pcre2(regex, "file: pattern"); }),
                AllOf(HasSubstr("file: pattern"), HasSubstr("means the same here as in Oniguruma")))
        << regex;
  EXPECT_THROW((void)regex_for_pcre2(std::string(200, '(') + "a" + std::string(200, ')'), "w"), DataError);
}

TEST(RegexSyntax, RewritesScriptsAndVerticalTabs) {
  const auto text = [](const char* regex) { return regex_for_pcre2(regex, "w"); };
  EXPECT_EQ(text("\\p{Han}\\P{Hiragana}\\p{^Katakana}"), "\\p{sc:Han}\\P{sc:Hiragana}\\P{sc:Katakana}");
  EXPECT_EQ(text("\\v[\\v]"), "\\x{0b}[\\x{0b}]");
  EXPECT_EQ(text("[-a-c\\-z-]"), "[\\-a-c\\-z\\-]");
  EXPECT_THAT(parts("\\p{Han}+", "\xE4\xB8\xAD\xE6\x96\x87\xE3\x80\x82\xE6\xB1\x89\xE5\xAD\x97"),
              ElementsAre("\xE4\xB8\xAD\xE6\x96\x87", "-\xE3\x80\x82", "\xE6\xB1\x89\xE5\xAD\x97"));
  EXPECT_THAT(parts("[^\\p{Han}]+", "\xE4\xB8\xAD\xE3\x80\x82"),
              ElementsAre("-\xE4\xB8\xAD", "\xE3\x80\x82"));
  EXPECT_THAT(parts("\\v",
                    "a\x0B"
                    "b\x0C\n"),
              ElementsAre("-a", "\x0B", "-b\x0C\n"));
}

/// PCRE2 has no nested classes: they become groups that match one character.
TEST(RegexSyntax, NestedClassesAndIntersections) {
  const char* text = "abcdefgh-12 \xC3\x89\xE4\xB8\xAD";
  EXPECT_THAT(parts("[a[c-e]h]+", text),
              ElementsAre("a", "-b", "cde", "-fg", "h", "-" + std::string(text + 8)));
  EXPECT_THAT(parts("[a-h&&[^c-e]]+", text), ElementsAre("ab", "-cde", "fgh", "-" + std::string(text + 8)));
  EXPECT_THAT(parts("[^a-h&&[b-z]]+", text), ElementsAre("a", "-bcdefgh", text + 8));
  EXPECT_THAT(parts("[\\p{L}&&[^\\p{Han}]&&[^\\p{Lu}]]+", text),
              ElementsAre("abcdefgh", "-" + std::string(text + 8)));
  EXPECT_THAT(parts("[[^a-z][x]]+", text), ElementsAre("-abcdefgh", text + 8));
  EXPECT_THAT(parts("[^[a-z][0-9]]+", "ab-1 c"), ElementsAre("-ab", "-", "-1", " ", "-c"));
}

TEST(RegexSyntax, PosixClassesAndWordBoundaries) {
  EXPECT_THAT(parts("[[:alpha:]_]+", "ab_1\xC3\xA9"), ElementsAre("ab_", "-1", "\xC3\xA9"));
  EXPECT_THAT(parts("[[:^alpha:]]+", "ab 1"), ElementsAre("-ab", " 1"));
  EXPECT_THAT(parts("[^[:space:][:digit:]]+", "ab 1c"), ElementsAre("ab", "- 1", "c"));
  EXPECT_THAT(parts("\\b", "ab c"), ElementsAre("", "-ab", "", "- ", "", "-c", ""));
  EXPECT_THAT(parts("b\\B", "abb b"), ElementsAre("-a", "b", "-b b"));
}

TEST(RegexSyntax, Latin1SuperscriptsAndFractionsAreWordCharactersOutsideOfClasses) {
  const std::string half = "\xC2\xBD", two = "\xC2\xB2", dot = "\xC2\xB7", four = "\xE2\x81\xB4";
  EXPECT_THAT(parts("a\\B", "a" + half + "a" + two + "a" + dot + "a" + four),
              ElementsAre("a", "-" + half, "a", "-" + two + "a" + dot + "a" + four));
  EXPECT_THAT(parts("\\b", "a" + two), ElementsAre("", "-a" + two, ""));
  EXPECT_THAT(parts("\\w+", "a" + two + four), ElementsAre("a" + two, "-" + four));
  EXPECT_THAT(parts("\\W+", two + four), ElementsAre("-" + two, four));
  EXPECT_THAT(parts("[\\w]+", "a" + two), ElementsAre("a", "-" + two));
  EXPECT_THAT(parts("[^\\w]+", "a" + two), ElementsAre("-a", two));
}

TEST(RegexSyntax, PropertyNamesAreReadAsInOniguruma) {
  const auto text = [](const char* regex) { return regex_for_pcre2(regex, "w"); };
  EXPECT_EQ(text("\\p{Letter}\\p{upper case-LETTER}[\\P{Decimal_Number}]"), "\\p{L}\\p{Lu}[\\P{Nd}]");
  EXPECT_EQ(text("\\p{^han}\\p{Cased_Letter}\\p{Digit}\\p{Any}"), "\\P{sc:Han}\\p{L&}\\p{Nd}\\p{Any}");
  EXPECT_THAT(parts("\\p{Uppercase_Letter}+", "abAB-1"), ElementsAre("-ab", "AB", "--1"));
}

/// \W and inverse POSIX classes in a class become alternatives to its other members.
TEST(RegexSyntax, InverseClassesInClasses) {
  const char* text = "abAB-1 \xC3\xA9\xC2\xB2";
  EXPECT_THAT(parts("[^\\W\\d]+", text), ElementsAre("abAB", "--1 ", "\xC3\xA9", "-\xC2\xB2"));
  EXPECT_THAT(parts("[\\W1]+", text), ElementsAre("-abAB", "-1 ", "-\xC3\xA9", "\xC2\xB2"));
  EXPECT_THAT(parts("[[:^alnum:]]+", text), ElementsAre("-abAB", "-", "-1", " ", "-\xC3\xA9", "\xC2\xB2"));
  EXPECT_THAT(parts("[[:punct:]]", "a+b!"), ElementsAre("-a", "+", "-b", "!")) << "symbols too";
  EXPECT_THAT(parts("[[:graph:]]+", "a b\t+"), ElementsAre("a", "- ", "b", "-\t", "+"));
  EXPECT_THAT(parts("[[:print:]]+", "a b\t+"), ElementsAre("a b", "-\t", "+"));
}

TEST(RegexSyntax, AnyCaseExtendsToTheEndOfItsGroup) {
  EXPECT_EQ(regex_for_pcre2("a(?i)b|c", "w"), "a(?i:b|c)");
  EXPECT_THAT(parts("a(?i)b|A", "abAB-1"), ElementsAre("ab", "-AB-1"));
  EXPECT_THAT(parts("(a(?i)b|c)B?", "abAB-1"), ElementsAre("ab", "-AB-1"));
  EXPECT_THAT(parts("(?i)AB", "abAB-1"), ElementsAre("ab", "AB", "--1"));
}

TEST(RegexSyntax, EmptyMatchesAreSpans) {
  EXPECT_THAT(parts("(?=[A-Z])", "aBC"), ElementsAre("-a", "", "-B", "", "-C"));
  EXPECT_THAT(parts("b*", "abbc"), ElementsAre("", "-a", "bb", "-c", "")) << "none directly after a match";
  EXPECT_THAT(parts("$", "a\nb"), ElementsAre("-a", "", "-\nb", ""));
  EXPECT_THAT(parts("a*", ""), ElementsAre());
}

}  // namespace
}  // namespace colonnade::tokenizers
