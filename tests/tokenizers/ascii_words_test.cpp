// Words split by windows of 64 bytes compared with words split one by one, which split_patterns_test compares
// with the regular expressions.
#include "colonnade/tokenizers/ascii_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "colonnade/tokenizers/split_patterns.h"

namespace colonnade::tokenizers {
namespace {

/// Random texts of a few hundred bytes, mostly ASCII, of fragments that the patterns distinguish.
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

class AsciiSplit : public ::testing::TestWithParam<SplitPattern> {
 protected:
  /// The ends of the words, read `slots` at a time.
  static std::vector<std::size_t> word_ends(const WordSplitter& splitter, const std::string& text,
                                            std::size_t slots) {
    const std::unique_ptr<char[]> exact(new char[text.size()]);  // reading past its end is an error
    std::copy(text.begin(), text.end(), exact.get());
    std::vector<const char*> ends(slots);
    std::vector<std::size_t> result;
    const char *at = exact.get(), *end = at + text.size();
    while (at < end) {
      const std::size_t count = splitter.split(at, end, ends);
      if (count == 0 || count > slots) return {};
      for (std::size_t k = 0; k < count; ++k)
        result.push_back(static_cast<std::size_t>(ends[k] - exact.get()));
      at = ends[count - 1];
    }
    return result;
  }
};

TEST_P(AsciiSplit, MatchesTheScalarPatternAtEverySimdLevel) {
  for (int level = 0; level <= static_cast<int>(best_simd_level()); ++level) {
    const WordSplitter splitter(GetParam(), static_cast<SimdLevel>(level));
    RandomText random;
    for (std::size_t i = 0; i < 20'000; ++i) {
      const std::string text = random();
      std::vector<Span> spans;
      split_by_pattern(GetParam(), text, spans);
      std::vector<std::size_t> expected;
      for (const Span& span : spans) expected.push_back(span.end);
      ASSERT_EQ(word_ends(splitter, text, i % 7 == 0 ? 1 + i % 70 : 256), expected)
          << '"' << text << "\" at SIMD level " << level;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, AsciiSplit,
                         ::testing::Values(SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2,
                                           SplitPattern::kCl100k, SplitPattern::kTiktokenV1,
                                           SplitPattern::kO200k, SplitPattern::kTekken),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

TEST(AsciiSplitter, StopWhereTheWindowDoesNotDetermineTheNextWord) {
  constexpr AsciiPattern kLlama3{BasePattern::kLlama3, 3, true};
  const std::string text = "one two 'three'  four\n\n  five 12345 !!\n six";
  std::array<const char*, 256> ends;
  for (int level = 0; level <= static_cast<int>(best_simd_level()); ++level) {
    const AsciiSplitter words = ascii_splitter<kLlama3>(static_cast<SimdLevel>(level));
    std::string begins(text.size(), '.');
    for (std::size_t i = words(text.data(), text.data() + text.size(), ends); i-- > 0;)
      begins.at(static_cast<std::size_t>(ends[i] - text.data())) = '^';
    EXPECT_EQ(text.size(), 43U);
    EXPECT_EQ(begins, "...^...^.^....^^^....^.^^....^^..^.^...^...");
    EXPECT_EQ(words(text.data(), text.data() + 1, ends), 0U);
    EXPECT_EQ(words(text.data(), text.data() + text.size(), std::span(ends).first(kAsciiWindow - 1)), 0U);
  }
}

}  // namespace
}  // namespace colonnade::tokenizers
