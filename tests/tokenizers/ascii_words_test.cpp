// Words cut by windows of 64 bytes against words cut one by one, which cut_rules_test holds against the
// expressions.
#include "colonnade/tokenizers/ascii_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "colonnade/tokenizers/cut_rules.h"

namespace colonnade::tokenizers {
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

class AsciiWordsOf : public ::testing::TestWithParam<SplitRule> {
 protected:
  /// The words' ends, asked for `places` at a time.
  static std::vector<std::size_t> cut(const WordCutter& cutter, const std::string& text, std::size_t places) {
    const std::unique_ptr<char[]> exact(new char[text.size()]);  // nothing behind its end may be read
    std::copy(text.begin(), text.end(), exact.get());
    std::vector<const char*> ends(places);
    std::vector<std::size_t> found;
    const char *at = exact.get(), *end = at + text.size();
    while (at < end) {
      const std::size_t count = cutter.cut(at, end, ends);
      if (count == 0 || count > places) return {};
      for (std::size_t k = 0; k < count; ++k)
        found.push_back(static_cast<std::size_t>(ends[k] - exact.get()));
      at = ends[count - 1];
    }
    return found;
  }
};

TEST_P(AsciiWordsOf, AreThoseOfTheRuleWithAnyVectors) {
  for (int vectors = 0; vectors <= static_cast<int>(widest_vectors()); ++vectors) {
    const WordCutter cutter(GetParam(), static_cast<Vectors>(vectors));
    RandomText random;
    for (std::size_t i = 0; i < 20'000; ++i) {
      const std::string text = random();
      std::vector<Span> spans;
      split_by_rule(GetParam(), text, spans);
      std::vector<std::size_t> expected;
      for (const Span& span : spans) expected.push_back(span.end);
      ASSERT_EQ(cut(cutter, text, i % 7 == 0 ? 1 + i % 70 : 256), expected)
          << '"' << text << "\" by vectors " << vectors;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, AsciiWordsOf,
                         ::testing::Values(SplitRule::kGpt2, SplitRule::kLlama3, SplitRule::kQwen2,
                                           SplitRule::kCl100k, SplitRule::kTiktokenV1, SplitRule::kO200k,
                                           SplitRule::kTekken),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

TEST(AsciiWords, AreCutAsFarAsTheyAreCertain) {
  constexpr AsciiRule kLlama3{WordFamily::kLlama3, 3, true};
  const std::string text = "one two 'three'  four\n\n  five 12345 !!\n six";
  std::array<const char*, 256> ends;
  for (int vectors = 0; vectors <= static_cast<int>(widest_vectors()); ++vectors) {
    const AsciiWords words = ascii_words<kLlama3>(static_cast<Vectors>(vectors));
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
