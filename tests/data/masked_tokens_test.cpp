// Masked tokens against Megatron's BERT samples, which use all masking rules, and degenerate texts.
#include "colonnade/data/samples/masked_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/npy.h"
#include "data/sentences.h"

namespace colonnade::data {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kCls = 2, kSep = 3, kMask = 4, kVocabulary = 2000;

struct Case {
  std::string name;
  std::int64_t length;
  std::uint32_t seed;
  bool pairs;
  MaskRules rules;
};

Ints sentences_of(const IndexedDataset& source, std::int64_t begin, std::int64_t end) {
  Ints tokens;
  for (std::int64_t i = begin; i < end; ++i) {
    Ints sentence(static_cast<std::size_t>(source.length(i)));
    source.tokens(i, 0, sentence);
    tokens.insert(tokens.end(), sentence.begin(), sentence.end());
  }
  return tokens;
}

/// BERT's input for sentences [begin, end): [CLS] A [SEP] B [SEP], A and B truncated to `length` in total.
Ints bert_text(const IndexedDataset& source, std::int64_t begin, std::int64_t end, std::int64_t length,
               bool pairs, RandomState& random) {
  std::int64_t pivot = pairs ? 1 : end - begin;
  if (pairs && end - begin >= 3) pivot = random.randint(1, end - begin);
  const bool swapped = pairs && random.random_sample() < 0.5;
  Ints a = sentences_of(source, begin, begin + pivot);
  Ints b = sentences_of(source, begin + pivot, end);
  if (swapped) std::swap(a, b);
  while (a.size() + b.size() > static_cast<std::size_t>(length)) {
    Ints& longer = a.size() > b.size() ? a : b;
    longer.erase(random.random_sample() < 0.5 ? longer.begin() : longer.end() - 1);
  }
  Ints text{kCls};
  text.insert(text.end(), a.begin(), a.end());
  text.push_back(kSep);
  text.insert(text.end(), b.begin(), b.end());
  if (!b.empty()) text.push_back(kSep);
  return text;
}

TEST(MaskedTokens, MatchMegatronsBert) {
  const IndexedDataset source(test::vector_path("indexed/bert_uint16"));
  MaskRules words{.max_words = 3, .cls = kCls, .sep = kSep, .continues_word = word_pieces()};
  MaskRules tokens = words, spans = words;
  tokens.max_words = 1;
  tokens.whole_words = false;
  spans.max_words = 5;
  spans.geometric = true;
  for (const Case& c : {Case{"bert_nsp", 96, 11, true, words}, Case{"bert_mlm", 128, 12, false, tokens},
                        Case{"bert_span", 64, 2024, true, spans}}) {
    const IntArray index = IntArray::map(test::vector_path("indexed/masked/" + c.name + ".sample_index.npy"));
    const auto expected = test::read_tensors("indexed/masked/" + c.name + ".first.safetensors");
    const auto length = static_cast<std::size_t>(c.length);
    for (std::size_t i = 0; i < 50; ++i) {
      RandomState random(c.seed + static_cast<std::uint32_t>(i));
      const auto row = static_cast<std::int64_t>(3 * i);
      const Ints text = bert_text(source, index[row], index[row + 1], index[row + 2], c.pairs, random);
      Ints masked = text, labels(length, -1);
      const auto mask = [&](std::size_t at) {
        labels[at] = text[at];
        if (random.random_sample() < 0.8)
          masked[at] = kMask;
        else if (random.random_sample() >= 0.5)
          masked[at] = random.randint(0, kVocabulary);
      };
      (void)mask_spans(text, index[row + 2], c.rules, random, mask);
      masked.resize(length, 0);
      const auto at = static_cast<std::ptrdiff_t>(i * length);
      ASSERT_TRUE(std::equal(masked.begin(), masked.end(), expected.at("text").begin() + at))
          << c.name << " " << i;
      ASSERT_TRUE(std::equal(labels.begin(), labels.end(), expected.at("labels").begin() + at))
          << c.name << " " << i;
    }
  }
}

TEST(MaskedTokens, StayWithinTheMaskProbabilityAndDoNotOverlap) {
  const MaskRules rules{.probability = 0.3,
                        .max_words = 10,
                        .geometric = true,
                        .cls = 1,
                        .continues_word = {false, false, true}};
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    RandomState random(seed);
    Ints text(seed);  // tokens 0, 1 (never masked) and 2 (continues a word)
    for (std::int64_t& token : text) token = random.randint(0, 3);
    const auto spans = mask_spans(text, seed + 2, rules, random).spans;
    std::size_t count = 0, end = 0;
    for (const MaskedSpan& span : spans) {
      EXPECT_GE(span.front(), end);
      EXPECT_TRUE(std::ranges::is_sorted(span));
      end = span.back() + 1;
      for (const std::size_t at : span) EXPECT_NE(text.at(at), 1);
      count += span.size();
      // Words are masked completely.
      std::size_t next = end;
      while (next < text.size() && text[next] == 1) ++next;
      EXPECT_TRUE(next == text.size() || text[next] != 2) << seed;
    }
    EXPECT_LE(static_cast<double>(count), std::max(1.0, 0.3 * static_cast<double>(text.size()) + 0.5));
  }
}

TEST(MaskedTokens, AreEmptyIfNothingMayBeMasked) {
  RandomState random(1);
  const MaskRules rules{.cls = 7, .sep = 8};
  EXPECT_TRUE(mask_spans({}, 100, rules, random).spans.empty());
  EXPECT_TRUE(mask_spans(Ints{7, 8, 7}, 100, rules, random).spans.empty());
  EXPECT_TRUE(
      mask_spans(Ints{1, 2, 3}, 2, rules, random).spans.empty());  // 0.15 of 2 tokens is less than one
  EXPECT_TRUE(mask_spans(Ints{1, 2, 3}, 100, {.probability = 0}, random).spans.empty());
  EXPECT_EQ(mask_spans(Ints{1, 2, 3}, 100, rules, random).spans.size(), 1U);
  // A word longer than the budget is skipped.
  const MaskRules pieces{.continues_word = {false, true}};
  EXPECT_TRUE(mask_spans(Ints{0, 1, 1, 1}, 100, pieces, random).spans.empty());
}

}  // namespace
}  // namespace colonnade::data
