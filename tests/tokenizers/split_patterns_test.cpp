// Hand-written split patterns compared with their regular expressions on random text.
#include "colonnade/tokenizers/split_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "support/files.h"

namespace colonnade::tokenizers {
namespace {

using ::testing::ElementsAre;

/// Random texts of characters that the patterns distinguish, all in Unicode 14.0.
class RandomText {
 public:
  std::string operator()() {
    static const std::vector<std::string> kParts = {"a",
                                                    "B",
                                                    "e",
                                                    "t",
                                                    "Zoe",
                                                    "HTTP",
                                                    "Server",
                                                    "'",
                                                    "'s",
                                                    "'S",
                                                    "'ll",
                                                    "'LL",
                                                    "'Re",
                                                    "'\xC5\xBF",
                                                    "0",
                                                    "12",
                                                    "1234567",
                                                    " ",
                                                    "  ",
                                                    "   ",
                                                    "\n",
                                                    "\r\n",
                                                    "\r",
                                                    "\t",
                                                    "\xC2\xA0",
                                                    "\xE3\x80\x80",
                                                    "!",
                                                    "...",
                                                    "/",
                                                    "/\n",
                                                    "$",
                                                    "+",
                                                    "_",
                                                    "\x01",
                                                    "\x7F",
                                                    "\xC3\xA9",
                                                    "\xC3\x89",
                                                    "e\xCC\x81",
                                                    "\xCC\x81",
                                                    "\xCA\xB0",
                                                    "\xC7\x85",
                                                    "\xE4\xB8\xAD",
                                                    "\xE3\x82\xA2\xE3\x83\xBB",
                                                    "\xC2\xBD",
                                                    "\xD9\xA3",
                                                    "\xE2\x82\xAC",
                                                    "\xE2\x85\xA7",
                                                    "\xF0\x9F\x98\x80",
                                                    "\xE2\x80\x8D",
                                                    "\xEF\xBB\xBF",
                                                    "\xE0\xA4\xB9\xE0\xA4\xBF",
                                                    "\xE1\xA0\x8E",
                                                    "longerwordsthaneight",
                                                    "LONGERWORDSTHANEIGHT"};
    std::string text;
    for (std::size_t i = 1 + next(12); i > 0; --i) text += kParts[next(kParts.size())];
    return text;
  }

 private:
  std::size_t next(std::size_t below) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(state_ >> 33) % below;
  }
  std::uint64_t state_ = 7;
};

std::vector<std::string> parts_of(const std::string& text, const std::vector<Span>& spans) {
  std::vector<std::string> parts;
  for (const Span& span : spans)
    parts.push_back((span.matched ? "" : "-") + text.substr(span.begin, span.end - span.begin));
  return parts;
}

std::vector<std::string> split_text(SplitPattern pattern, const std::string& text) {
  std::vector<Span> spans;
  split_by_pattern(pattern, text, spans);
  return parts_of(text, spans);
}

class SplitPatterns : public ::testing::TestWithParam<SplitPattern> {};

TEST_P(SplitPatterns, MatchTheirRegularExpression) {
  std::string expression(regex_of(GetParam()));
  // Oniguruma and PCRE2 read these constructs differently; only this pattern has them.
  if (GetParam() == SplitPattern::kCl100k) {
    expression.replace(expression.find("{1,3}+"), 6, "{1,3}");
    expression.replace(expression.find("\\s++$"), 5, "\\s++(?![\\s\\S])");
  }
  const Regex regex(expression, "pattern");
  RandomText random;
  std::vector<Span> spans;
  for (int i = 0; i < 40'000; ++i) {
    const std::string text = random();
    spans.clear();
    regex.find(text, spans);
    ASSERT_EQ(split_text(GetParam(), text), parts_of(text, spans)) << '"' << text << '"';
  }
}

TEST_P(SplitPatterns, AreFoundByTheirRegularExpression) {
  EXPECT_EQ(find_split_pattern(regex_of(GetParam())), GetParam());
}

INSTANTIATE_TEST_SUITE_P(AllPatterns, SplitPatterns,
                         ::testing::Values(SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2,
                                           SplitPattern::kCl100k, SplitPattern::kTiktokenV1,
                                           SplitPattern::kO200k, SplitPattern::kTekken,
                                           SplitPattern::kDeepSeek3, SplitPattern::kDigits3,
                                           SplitPattern::kCjk),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

TEST(SplitPattern, SplitsWordsOfEveryKind) {
  EXPECT_THAT(split_text(SplitPattern::kGpt2, "I'm 12345 ok...  yes\n\n x"),
              ElementsAre("I", "'m", " 12345", " ok", "...", " ", " yes", "\n\n", " x"));
  EXPECT_THAT(split_text(SplitPattern::kLlama3, "I'M 12345 ok...\n\n  x"),
              ElementsAre("I", "'M", " ", "123", "45", " ok", "...\n\n", " ", " x"));
  EXPECT_THAT(split_text(SplitPattern::kQwen2, "a 12"), ElementsAre("a", " ", "1", "2"));
  EXPECT_THAT(split_text(SplitPattern::kO200k, "HTTPServer's iPhone/\n"),
              ElementsAre("HTTPServer's", " i", "Phone", "/\n"));
  EXPECT_THAT(split_text(SplitPattern::kDeepSeek3, "1a!b \x01"), ElementsAre("1a", "!b", " ", "-\x01"));
  EXPECT_THAT(split_text(SplitPattern::kDigits3, "a1234"), ElementsAre("-a", "123", "4"));
  EXPECT_EQ(
      find_split_pattern(
          "[^\r\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\r\n]*|\\s*[\r\n]|\\s+(?!\\S)|\\s+"),
      SplitPattern::kTiktokenV1);
  EXPECT_EQ(find_split_pattern("\\w+"), std::nullopt);
}

TEST(Regex, HasTheMeaningOfOniguruma) {
  const auto parts = [](const char* expression, const std::string& text) {
    std::vector<Span> spans;
    Regex(expression, "test").find(text, spans);
    return parts_of(text, spans);
  };
  EXPECT_THAT(parts("\\s+", "a \xE1\xA0\x8E\xC2\xA0"), ElementsAre("-a", " ", "-\xE1\xA0\x8E", "\xC2\xA0"))
      << "U+180E is not white space";
  EXPECT_THAT(parts("\\w+", "a\xCC\x81\xE2\x80\xBF!"), ElementsAre("a\xCC\x81\xE2\x80\xBF", "-!"))
      << "marks and connectors are word characters";
  EXPECT_THAT(parts("^a", "a\na"), ElementsAre("a", "-\n", "a")) << "^ matches at every line";
  const std::string many(50'000, 'a');
  EXPECT_THAT(parts("(?:a|b)+", many), ElementsAre(many)) << "a long match of many alternatives";
  EXPECT_THAT(parts("\\u4e2d", "\xE4\xB8\xAD"), ElementsAre("\xE4\xB8\xAD"));
  EXPECT_THAT(parts("(?i:'s)", "'\xC5\xBF"), ElementsAre("'\xC5\xBF"));
}

}  // namespace
}  // namespace colonnade::tokenizers
