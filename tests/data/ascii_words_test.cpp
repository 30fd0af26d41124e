// Words cut by windows of 64 bytes against words cut one by one, which cut_rules_test holds against the
// expressions.
#include "colonnade/data/tokenizers/ascii_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "colonnade/data/tokenizers/cut_rules.h"

namespace colonnade::data {
namespace {

/// Texts of a few hundred bytes, most of them ASCII, of parts that the rules tell apart.
class RandomText {
 public:
  std::string operator()() {
    static const std::array<const char*, 48> kParts = {"a",
                                                       "e",
                                                       "s",
                                                       "t",
                                                       "d",
                                                       "re",
                                                       "Zoe",
                                                       "HTTP",
                                                       "Server",
                                                       "'",
                                                       "'s",
                                                       "'S",
                                                       "'ll",
                                                       "'l",
                                                       "'Re",
                                                       "'r",
                                                       "0",
                                                       "12",
                                                       "1234",
                                                       " ",
                                                       " ",
                                                       "  ",
                                                       "         ",
                                                       "\n",
                                                       "\n",
                                                       "\r",
                                                       "\t",
                                                       "\v",
                                                       "\n",
                                                       "/",
                                                       "/\n",
                                                       "!",
                                                       "...",
                                                       "$",
                                                       "_",
                                                       "\x01",
                                                       "-",
                                                       "=",
                                                       "'e",
                                                       "''",
                                                       "ma",
                                                       "ve",
                                                       "\"",
                                                       "(",
                                                       ")",
                                                       "x",
                                                       "averylongwordindeed",
                                                       "AVERYLONGWORD"};
    static const std::array<const char*, 8> kOthers = {"\xC3\xA9", "\xC3\x89",     "\xC5\xBF", "'\xC5\xBF",
                                                       "\xC2\xA0", "\xE4\xB8\xAD", "\xCC\x81", "\xD9\xA3"};
    std::string text;
    const std::size_t rare = 5 + next(60);
    for (std::size_t i = 20 + next(100); i > 0; --i)
      text += next(rare) == 0 ? kOthers[next(kOthers.size())] : kParts[next(kParts.size())];
    return text;
  }

 private:
  std::size_t next(std::size_t below) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(state_ >> 33) % below;
  }
  std::uint64_t state_ = 11;
};

class AsciiWords : public ::testing::TestWithParam<SplitRule> {};

TEST_P(AsciiWords, AreThoseOfTheRule) {
  const WordCutter cutter(GetParam());
  RandomText random;
  std::array<const char*, 100> ends;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = random();
    const std::unique_ptr<char[]> exact(new char[text.size()]);  // nothing behind its end may be read
    std::copy(text.begin(), text.end(), exact.get());
    const char *at = exact.get(), *end = at + text.size();
    std::vector<std::size_t> found, expected;
    while (at < end) {
      const std::size_t count = cutter.cut(at, end, ends);
      ASSERT_GT(count, 0U);
      for (std::size_t k = 0; k < count; ++k)
        found.push_back(static_cast<std::size_t>(ends[k] - exact.get()));
      at = ends[count - 1];
    }
    std::vector<Span> spans;
    split_by_rule(GetParam(), text, spans);
    for (const Span& span : spans) expected.push_back(span.end);
    ASSERT_EQ(found, expected) << '"' << text << '"';
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, AsciiWords,
                         ::testing::Values(SplitRule::kGpt2, SplitRule::kLlama3, SplitRule::kQwen2,
                                           SplitRule::kCl100k, SplitRule::kTiktokenV1, SplitRule::kO200k,
                                           SplitRule::kTekken),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

TEST(AsciiWordsWindow, CoversWhatIsCertain) {
  constexpr AsciiRule kLlama3{WordFamily::kLlama3, 3, true};
  const std::string text = "one two 'three'  four\n\n  five 12345 !!\n six";
  std::string begins;
  for (std::uint64_t bits = ascii_word_begins<kLlama3>(text.data(), text.data() + text.size()), i = 0; i < 64;
       ++i)
    begins += i < text.size() ? (bits >> i & 1) != 0 ? "^" : "." : "";
  EXPECT_EQ(text.size(), 43U);
  EXPECT_EQ(begins, "...^...^.^....^^^....^.^^....^^..^.^...^...");
  EXPECT_EQ(ascii_word_begins<kLlama3>(text.data(), text.data() + 1), 0U);
}

}  // namespace
}  // namespace colonnade::data
