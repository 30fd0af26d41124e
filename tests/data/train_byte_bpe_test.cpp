// Training of byte-level BPE: what is merged first, and that the result is a tokenizer.
#include "colonnade/data/tokenizers/train_byte_bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/data/tokenizers/tokenizer_json.h"
#include "data/vectors.h"

namespace colonnade::data {
namespace {

using nlohmann::json;

TEST(TrainByteBpe, MergesTheMostFrequentPairFirst) {
  const json file = json::parse(train_byte_bpe({"abab cab", "ab"}, {.vocab_size = 259, .special = {}}));
  // ab 4 times; then of the pairs seen once the one with the smallest ids
  EXPECT_EQ(file["model"]["merges"][0], json::array({"a", "b"}));
  EXPECT_EQ(file["model"]["vocab"]["ab"], 256);
  EXPECT_EQ(file["model"]["merges"].size(), 3U);
  EXPECT_EQ(file["model"]["vocab"].size(), 259U);
}

TEST(TrainByteBpe, StopsAtRarePairsAndAtTheEndOfTheText) {
  EXPECT_EQ(json::parse(train_byte_bpe({"ab"}, {.vocab_size = 1000}))["model"]["merges"].size(), 1U);
  EXPECT_EQ(
      json::parse(train_byte_bpe({"ab ab ab ac"}, {.vocab_size = 1000, .min_count = 2}))["model"]["merges"]
          .size(),
      2U)
      << "ab and then a space before it";
  EXPECT_THROW((void)train_byte_bpe({"ab"}, {.vocab_size = 256}), ConfigError);
  EXPECT_THROW((void)train_byte_bpe({"\xff"}, {.vocab_size = 300}), DataError);
}

TEST(TrainByteBpe, GivesATokenizerThatGivesTextsBack) {
  std::vector<std::string> texts;
  std::ifstream in(vector_path("indexed/corpus_gpt2.jsonl"));
  for (std::string line; std::getline(in, line);) texts.push_back(json::parse(line)["text"]);
  for (const SplitRule rule : {SplitRule::kGpt2, SplitRule::kO200k}) {
    const std::string file = train_byte_bpe(texts, {.vocab_size = 700, .rule = rule});
    EXPECT_TRUE(file == train_byte_bpe(texts, {.vocab_size = 700, .rule = rule}));
    const TempFolder folder;
    std::ofstream(folder / "tokenizer.json") << file;
    const auto tokenizer = read_tokenizer_json(folder / "tokenizer.json");
    EXPECT_EQ(tokenizer->vocab_size(), 700);
    EXPECT_EQ(tokenizer->id_of("<|endoftext|>"), 0);
    const std::string text = texts[3] + " \xE2\x82\xAC\n\n new";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    EXPECT_LT(tokenizer->encode(texts[0]).size(), texts[0].size() / 2);
  }
}

}  // namespace
}  // namespace colonnade::data
