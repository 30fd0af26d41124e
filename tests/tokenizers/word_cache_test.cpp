// Texts encoded word by word compared with whole texts, and the tokenizers that allow it.
#include "colonnade/tokenizers/word_cache.h"

#include <gtest/gtest.h>

#include "colonnade/tokenizers/tokenizer_json.h"
#include "support/files.h"

namespace colonnade::tokenizers {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

json file_of(const std::string& name) {
  return json::parse(read_file(test::vector_path("tokenizers/" + name + ".json")));
}
std::unique_ptr<HfTokenizer> tokenizer_of(const json& file) {
  return std::make_unique<HfTokenizer>(parse_tokenizer_json("tokenizer.json", file.dump()));
}
std::optional<WordBoundaries> boundaries_of(const json& file) {
  const TokenizerComponents parts = parse_tokenizer_json("tokenizer.json", file.dump());
  return WordBoundaries::find(parts.normalizers, parts.pre_tokenizers, *parts.model);
}

/// Appends a normalizer.
json with_step(json file, const json& step) {
  json steps = json::array();
  if (!file["normalizer"].is_null() && file["normalizer"]["type"] == "Sequence") {
    steps = file["normalizer"]["normalizers"];
  } else if (!file["normalizer"].is_null()) {
    steps.push_back(file["normalizer"]);
  }
  steps.push_back(step);
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  return file;
}
/// A normalizer that matches no text of these tests, and is not proven to be local.
const json kNeverMatches = {{"type", "Replace"}, {"pattern", {{"String", "\x01\x02"}}}, {"content", "x"}};

/// Random words, white space, marks, and combining characters.
std::string random_text(std::uint64_t& state) {
  static const std::array<const char*, 40> kParts = {"the",
                                                     "of",
                                                     "a",
                                                     "Model",
                                                     "tokenize",
                                                     "x",
                                                     "unbelievable",
                                                     "123",
                                                     " ",
                                                     " ",
                                                     " ",
                                                     " ",
                                                     " ",
                                                     "  ",
                                                     "   ",
                                                     "\n",
                                                     "\t",
                                                     "\r\n",
                                                     ".",
                                                     ",",
                                                     "(",
                                                     "'",
                                                     "_",
                                                     "::",
                                                     "\xC3\xA9",
                                                     "\xCE\xA3",
                                                     "\xD0\x96",
                                                     "\xE4\xB8\xAD",
                                                     "\xE2\x96\x81",
                                                     "\xCC\x81",
                                                     "\xE2\x80\x8D",
                                                     "\xD8\x80",
                                                     "\xC2\xA0",
                                                     "\xE3\x80\x80",
                                                     "\xEF\xB7\xBA",
                                                     "\xF0\x9F\x98\x80",
                                                     "\x01",
                                                     "\xE3\x82\x99",
                                                     "</s>",
                                                     "[MASK]"};
  const auto next = [&state](std::size_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(state >> 33) % below;
  };
  std::string text;
  const bool plain = next(2) == 0;
  for (std::size_t i = 1 + next(40); i > 0; --i) text += kParts[next(plain ? 24 : kParts.size())];
  return text;
}

/// The pipelines of BERT, T5, Llama 2, and Mistral, which marks words without splitting them.
std::vector<std::pair<std::string, json>> pipelines() {
  json mistral = file_of("llama2_json");
  mistral["normalizer"] = nullptr;
  mistral["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", "first"}, {"split", false}};
  json words = file_of("bert_wordpiece");
  words["pre_tokenizer"] = {{"type", "Whitespace"}};
  return {{"bert", file_of("bert_wordpiece")},
          {"t5", file_of("t5_unigram")},
          {"llama2", file_of("llama2_json")},
          {"mistral", mistral},
          {"words", words}};
}

TEST(WordCache, WordsAreEncodedAsWithinTheirText) {
  for (const auto& [name, file] : pipelines()) {
    const auto boundaries = boundaries_of(file);
    ASSERT_TRUE(boundaries) << name;
    ASSERT_FALSE(boundaries_of(with_step(file, kNeverMatches))) << name;
    const auto by_word = tokenizer_of(file), whole = tokenizer_of(with_step(file, kNeverMatches));
    std::uint64_t state = 7;
    std::size_t splits = 0;
    for (int i = 0; i < 20'000; ++i) {
      const std::string text = random_text(state);
      if (i < 100)
        for (std::size_t at = 0; (at = boundaries->next(text, at == 0 ? 0 : at + 1)) < text.size();) ++splits;
      ASSERT_EQ(by_word->encode(text), whole->encode(text)) << name << ": '" << text << "'";
    }
    EXPECT_GT(splits, 100U) << name;
  }
}

TEST(WordCache, DependentWordsAreNotSplit) {
  const json llama2 = file_of("llama2_json"), t5 = file_of("t5_unigram"), bert = file_of("bert_wordpiece");
  json crossing = llama2;  // "e" and a mark are one token
  const auto id = crossing["model"]["vocab"].size();
  crossing["model"]["vocab"]["e\xE2\x96\x81"] = id;
  crossing["model"]["merges"].push_back(crossing["model"]["merges"][0].is_array() ? json{"e", "\xE2\x96\x81"}
                                                                                  : json("e \xE2\x96\x81"));
  json added = json::array();
  for (json token : crossing["added_tokens"])
    if (llama2["model"]["vocab"].contains(token["content"].get<std::string>())) added.push_back(token);
  crossing["added_tokens"] = added;
  EXPECT_FALSE(boundaries_of(crossing));
  json ignoring_merges = llama2;
  ignoring_merges["model"]["ignore_merges"] = true;
  EXPECT_FALSE(boundaries_of(ignoring_merges));
  json unigram = t5;  // sums of scores over a whole text round differently than over words
  unigram["pre_tokenizer"] = nullptr;
  EXPECT_FALSE(boundaries_of(unigram));
  EXPECT_FALSE(
      boundaries_of(with_step(bert, {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}})));
  const json space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "x"}};
  EXPECT_EQ(boundaries_of(with_step(bert, space))->next("a b\tc", 0), 5U);  // BERT turns tabs into spaces
}

TEST(WordCache, BoundariesAreNextToNonCombiningCharacters) {
  const auto bert = boundaries_of(file_of("bert_wordpiece")), t5 = boundaries_of(file_of("t5_unigram"));
  const auto all = [](const WordBoundaries& boundaries, const std::string& text) {
    std::string marks(text.size(), '.');
    for (std::size_t at = 0; (at = boundaries.next(text, at == 0 ? 0 : at + 1)) < text.size();)
      marks[at] = '^';
    return marks;
  };
  EXPECT_EQ(all(*bert, "a b  c.d\ne"), ".^.^..^^^.");
  EXPECT_EQ(all(*t5, "a b  c.d\ne f"), ".^.^....^.^.");
  EXPECT_EQ(all(*bert, "a \xCC\x81 b"), "......");  // an accent on a space, and a space after an accent
  EXPECT_EQ(all(*t5, "a \xC3\xA9 b"), ".^..^.");
}

TEST(WordCache, KeepsFrequentWordsAndWordsWithoutIds) {
  WordCache cache;
  int encoded = 0;
  const auto ids_of = [&](const std::string& word) {
    Ids ids{-5};
    cache.append(word, ids, [&](std::string_view text, Ids& own) {
      ++encoded;
      own.insert(own.end(), text.size() % 5, static_cast<std::int32_t>(text.size()));
    });
    return ids;
  };
  EXPECT_EQ(ids_of("seven77"), (Ids{-5, 7, 7}));
  EXPECT_EQ(ids_of("five5"), Ids{-5});
  for (int i = 0; i < 200'000; ++i) {  // six per set
    ids_of("rare" + std::to_string(i));
    if (i % 100 == 0) ids_of("seven77");
  }
  encoded = 0;
  EXPECT_EQ(ids_of("seven77"), (Ids{-5, 7, 7}));
  EXPECT_EQ(encoded, 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ids_of(std::string(47, 'x')), (Ids{-5, 47, 47}));
  EXPECT_EQ(encoded, 2);
}

}  // namespace
}  // namespace colonnade::tokenizers
