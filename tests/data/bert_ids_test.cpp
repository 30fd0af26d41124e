// BERT's special ids for all kinds of tokenizers.
#include "colonnade/data/samples/bert/bert_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "colonnade/base/error.h"
#include "data/sentences.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;

TEST(BertIds, OfNumericTextAreTheLastIds) {
  const auto tokenizer = tokenizers::make_tokenizer({.type = "NullTokenizer", .vocab_size = 50});
  for (const tokenizers::Tokenizer* given :
       std::array<const tokenizers::Tokenizer*, 2>{tokenizer.get(), nullptr}) {
    const BertIds ids = bert_ids(given, 50);
    EXPECT_EQ(ids.vocab_size, 50);
    EXPECT_EQ(ids.words, 50);
    EXPECT_EQ(ids.pad, 46);
    EXPECT_EQ(ids.cls, 47);
    EXPECT_EQ(ids.sep, 48);
    EXPECT_EQ(ids.mask, 49);
    EXPECT_TRUE(ids.continues_word.empty());
  }
  EXPECT_EQ(bert_ids(tokenizer.get(), 0).mask, 49);
}

TEST(BertIds, OfWordPieceAreItsSpecialTokens) {
  const auto file = test::vector_path("tokenizers/bert_wordpiece.json");
  const auto tokenizer = tokenizers::make_tokenizer({.type = "HuggingFaceTokenizer", .model = file});
  const BertIds ids = bert_ids(tokenizer.get(), 0);
  EXPECT_EQ(ids.vocab_size, 2000);
  EXPECT_EQ(ids.words, 2000);
  EXPECT_EQ(ids.pad, 0);
  EXPECT_EQ(ids.cls, 2);
  EXPECT_EQ(ids.sep, 3);
  EXPECT_EQ(ids.mask, 4);
  EXPECT_EQ(ids.continues_word, word_pieces());
  const BertIds padded = bert_ids(tokenizer.get(), 2048);
  EXPECT_EQ(padded.vocab_size, 2048);
  EXPECT_EQ(padded.words, 2000);
  for (std::int32_t id = 0; id < 2000; ++id) EXPECT_EQ(tokenizer->id_of(tokenizer->piece_of(id)), id);
  EXPECT_EQ(tokenizer->piece_of(2000), "");
}

TEST(BertIds, OfACasedVocabularyFileIncludeMegatronsExtraIds) {
  const test::TempFolder folder;
  write_file_atomically(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n##s\n");
  const auto cased =
      tokenizers::make_tokenizer({.type = "BertWordPieceCase", .vocab_file = folder / "vocab.txt"});
  EXPECT_EQ(bert_ids(cased.get(), 0).words, 107);
  const auto lower =
      tokenizers::make_tokenizer({.type = "BertWordPieceLowerCase", .vocab_file = folder / "vocab.txt"});
  EXPECT_EQ(bert_ids(lower.get(), 0).words, 7);
  EXPECT_EQ(bert_ids(lower.get(), 0).continues_word,
            (std::vector{false, false, false, false, false, false, true}));
}

TEST(BertIds, ReportMissingTokens) {
  const auto error_message = [](const tokenizers::Tokenizer* tokenizer, std::int64_t vocab_size) {
    return test::message_of<ConfigError>([&] { (void)bert_ids(tokenizer, vocab_size); });
  };
  EXPECT_THAT(error_message(nullptr, 5),
              HasSubstr("--vocab-size must be at least 6, since the last four ids"));
  const test::TempFolder folder;
  std::string text = read_file(test::vector_path("tokenizers/bert_wordpiece.json"));
  for (std::size_t at = 0; (at = text.find("[MASK]", at)) != std::string::npos;)
    text.replace(at, 6, "[GAPS]");
  write_file_atomically(folder / "tokenizer.json", text);
  const auto without_mask =
      tokenizers::make_tokenizer({.type = "HuggingFaceTokenizer", .model = folder / "tokenizer.json"});
  EXPECT_THAT(error_message(without_mask.get(), 0), HasSubstr("got one without [MASK]; give"));
  const auto gpt2 = tokenizers::make_tokenizer(
      {.type = "HuggingFaceTokenizer", .model = test::vector_path("tokenizers/gpt2_bpe.json")});
  EXPECT_THAT(error_message(gpt2.get(), 0), HasSubstr("without [CLS], [SEP], [MASK], [PAD]; give"));
  const auto pieces = tokenizers::make_tokenizer(
      {.type = "SentencePieceTokenizer", .model = test::vector_path("tokenizers/sp_unigram.model")});
  EXPECT_THAT(error_message(pieces.get(), 0), HasSubstr("without [CLS], [SEP], [MASK], [PAD]; give"));
  const auto bert = tokenizers::make_tokenizer(
      {.type = "HuggingFaceTokenizer", .model = test::vector_path("tokenizers/bert_wordpiece.json")});
  EXPECT_THAT(error_message(bert.get(), 1999), HasSubstr("must hold the tokenizer's 2000 ids; got 1999"));
}

}  // namespace
}  // namespace colonnade::data
