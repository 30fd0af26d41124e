// Batches of BERT: contents, splits, orders, mock data, malformed data, errors.
#include "colonnade/data/samples/bert/bert_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/mock_source.h"
#include "colonnade/data/samples/bert/bert_dataset.h"
#include "data/sentences.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;

class BertBatchesTest : public SentenceBatchesTest {
 protected:
  [[nodiscard]] Splits open() const override {
    return open_bert_batches(data_, training_, ids_, sentence_order_);
  }

  bool sentence_order_ = true;
  BertIds ids_{.vocab_size = 2000,
               .words = 2000,
               .cls = 2,
               .sep = 3,
               .mask = 4,
               .pad = 0,
               .continues_word = word_pieces()};
};

// Megatron's pretrain_bert.py: spans of up to three words, with probabilities proportional to 1 / n.
TEST_F(BertBatchesTest, MatchMegatronsSamples) {
  training_.seq_length = 96;
  training_.seed = 11;
  training_.train_iters = 50;
  training_.eval_iters = 5;
  data_.split = "90,10,0";
  const HostBatch batch = open()[0]->get(0, 50);
  const auto expected = test::read_tensors("indexed/masked/bert_nsp.first.safetensors");
  EXPECT_TRUE(std::equal(batch.tokens.begin(), batch.tokens.end(), expected.at("text").begin()));
  EXPECT_TRUE(std::equal(batch.loss_mask.begin(), batch.loss_mask.end(), expected.at("loss_mask").begin()));
  EXPECT_TRUE(std::equal(batch.swapped.begin(), batch.swapped.end(), expected.at("is_random").begin()));

  // Megatron's descriptions, except for the path and the tokenizer of this run.
  std::set<std::string> described, megatrons;
  for (const auto& file : std::filesystem::directory_iterator(folder_ / "cache"))
    if (file.path().string().ends_with("BERTMaskedWordPieceDataset-description.txt"))
      described.insert(read_file(file.path()));
  for (const std::string hash : {"9819b8d3a5437e0115afacbd5f650b62", "d6d1347920dd8d5a3ed1e361dc78c86c"}) {
    std::string text = read_file(test::vector_path("indexed/masked/cache_bert_nsp/" + hash +
                                                   "-BERTMaskedWordPieceDataset-description.txt"));
    const std::size_t path = text.find("indexed/bert_uint16");
    text.replace(path, std::string("indexed/bert_uint16").size(), data_.data_path[0]);
    const std::size_t begin = text.find("{\n        \"class\"");
    text.replace(begin, text.find('}', begin) + 1 - begin, "null");
    megatrons.insert(text);
  }
  EXPECT_EQ(described, megatrons);
}

TEST_F(BertBatchesTest, HoldTheInputsOfBert) {
  for (const bool order : {true, false}) {
    sentence_order_ = order;
    const Splits splits = open();
    ASSERT_NE(splits[0], nullptr);
    ASSERT_NE(splits[1], nullptr);
    EXPECT_EQ(splits[2], nullptr);
    EXPECT_GE(splits[0]->size(), 240);
    const HostBatch batch = splits[0]->get(8, 4);
    EXPECT_EQ(batch.micro_batch, 4);
    EXPECT_EQ(batch.seq, 64);
    EXPECT_EQ(batch.samples, (Ints{8, 9, 10, 11}));
    EXPECT_EQ(batch.swapped.size(), order ? 4U : 0U);
    EXPECT_EQ(batch.encoder_seq, 0);
    EXPECT_TRUE(batch.position_ids.empty());
    EXPECT_TRUE(batch.cu_seqlens.empty());
    for (const std::size_t size : {batch.tokens.size(), batch.token_types.size(), batch.padding.size(),
                                   batch.labels.size(), batch.loss_mask.size()})
      EXPECT_EQ(size, 4U * 64);
    EXPECT_EQ(std::ranges::count(batch.token_types, 1) > 0, order);
    EXPECT_EQ(batch.tokens[0], 2);
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      if (batch.padding[i] == 1) {
        EXPECT_EQ(batch.tokens[i], 0);
      }
      if (batch.loss_mask[i] == 0) {
        EXPECT_EQ(batch.labels[i], 0);
      }
    }
  }
}

TEST_F(BertBatchesTest, DependOnlyOnSampleNumbers) {
  for (const char* type : {"single", "cyclic"}) {
    data_.dataloader_type = type;
    const HostBatch whole = open()[0]->get(200, 16);
    const Splits reopened = open();
    for (std::size_t row = 0; row < 16; ++row) {
      const HostBatch one = reopened[0]->get(200 + static_cast<std::int64_t>(row), 1);
      const auto at = static_cast<std::ptrdiff_t>(64 * row);
      EXPECT_TRUE(std::equal(one.tokens.begin(), one.tokens.end(), whole.tokens.begin() + at)) << row;
      EXPECT_TRUE(std::equal(one.labels.begin(), one.labels.end(), whole.labels.begin() + at)) << row;
      EXPECT_EQ(one.swapped[0], whole.swapped[row]);
    }
  }
}

TEST_F(BertBatchesTest, FollowMaskAndSeedSettings) {
  const auto first = [this] { return open()[0]->get(0, 16); };
  const auto masked = [](const HostBatch& batch) { return std::ranges::count(batch.loss_mask, 1.0F); };
  const HostBatch usual = first();
  data_.mask_prob = 0.4;
  EXPECT_GT(masked(first()), masked(usual));
  data_.mask_prob = 0.15;
  data_.short_seq_prob = 1;
  EXPECT_NE(first().tokens, usual.tokens);
  data_.short_seq_prob = 0.1;
  training_.seed = 100;
  EXPECT_NE(first().tokens, usual.tokens);
}

TEST_F(BertBatchesTest, ReplacePadIdsByTokenZero) {
  ids_.pad = 1;
  const HostBatch batch = open()[0]->get(0, 8);
  EXPECT_GT(std::ranges::count(batch.padding, 1), 0);
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) EXPECT_NE(batch.tokens[i], 1);
}

TEST_F(BertBatchesTest, PaddingDependsOnPositionsNotOnIds) {
  data_.data_path = {write({{30, 12}, {20, 14, 17}})};  // of token 7
  data_.split = "1,0,0";
  const HostBatch other = open()[0]->get(0, 8);
  ids_.pad = 7;
  const HostBatch batch = open()[0]->get(0, 8);
  EXPECT_EQ(batch.padding, other.padding);
  EXPECT_EQ(batch.loss_mask, other.loss_mask);
  EXPECT_GT(std::ranges::count(batch.padding, 0), 8 * 40);
  EXPECT_GT(std::ranges::count(batch.padding, 1), 0);
}

TEST_F(BertBatchesTest, RejectSpecialIdsInNumericText) {
  data_.data_path = {write({{30, 12}, {20, 14, 17}})};
  data_.split = "1,0,0";
  ids_ = bert_ids(nullptr, 12);
  EXPECT_EQ(error_message<DataError>(), "");
  ids_ = bert_ids(nullptr, 11);
  EXPECT_THAT(
      error_message<DataError>(),
      HasSubstr("token ids of text must be below 7, the first special id at the end of the vocabulary; "
                "got 7 in sample 0; raise --vocab-size"));
}

TEST_F(BertBatchesTest, MockDataUseTheIdsOutsideTheSpecialOnes) {
  data_.data_path.clear();
  data_.mock_data = true;
  ids_ = bert_ids(nullptr, 40);  // text of 0 to 35
  const Splits splits = open();
  ASSERT_NE(splits[2], nullptr);
  const HostBatch batch = splits[0]->get(0, 32);
  for (std::size_t i = 0; i < batch.labels.size(); ++i)
    if (batch.loss_mask[i] == 1) {
      EXPECT_LT(batch.labels[i], 36);
    }
  EXPECT_GT(std::ranges::count(batch.swapped, 1), 5);
  EXPECT_LT(std::ranges::count(batch.swapped, 1), 27);
  EXPECT_EQ(std::ranges::count(batch.tokens, 37), 32);  // cls
  // With special ids at the start of the vocabulary, text uses the ids after them.
  ids_ = {.vocab_size = 50, .words = 50, .cls = 2, .sep = 3, .mask = 4, .pad = 0};
  const HostBatch other = open()[0]->get(0, 32);
  for (std::size_t i = 0; i < other.labels.size(); ++i)
    if (other.loss_mask[i] == 1) {
      EXPECT_GE(other.labels[i], 5);
    }
}

TEST(MockSentences, CountUpInEachDocument) {
  const MockSentences source(5, 10);
  EXPECT_EQ(source.num_documents(), 10000);
  const MockSource sequences(10, 0);
  for (const std::int64_t document : {0, 1, 77, 9999}) {
    const std::int64_t begin = source.document_start(document), end = source.document_start(document + 1);
    std::int64_t count = 0;
    for (std::int64_t sentence = begin; sentence < end; ++sentence) {
      Ints tokens(static_cast<std::size_t>(source.length(sentence)));
      source.tokens(sentence, 0, tokens);
      EXPECT_EQ(source.length(sentence) == 64, sentence + 1 < end || tokens.size() == 64);
      for (const std::int64_t token : tokens) EXPECT_EQ(token, 5 + count++ % 10);
    }
    EXPECT_EQ(count, sequences.length(document));
  }
  EXPECT_EQ(source.document_start(10000), source.num_sequences());
  Ints tokens(3);
  source.tokens(1, 2, tokens);
  EXPECT_EQ(tokens, (Ints{5 + 66 % 10, 5 + 67 % 10, 5 + 68 % 10}));
  EXPECT_THROW(source.tokens(0, 63, tokens), Error);
}

TEST_F(BertBatchesTest, ReportBadSettings) {
  training_.seq_length = 4;
  EXPECT_THAT(error_message<ConfigError>(), HasSubstr("--seq-length must be 5 to"));
  training_.seq_length = 64;
  training_.seed = -1;
  EXPECT_THAT(error_message<ConfigError>(), HasSubstr("--seed"));
  training_.seed = 99;
  ids_.vocab_size = 1000;
  EXPECT_THAT(error_message<DataError>(), HasSubstr("must be 0 to 999"));
  data_.mock_data = true;
  EXPECT_THAT(error_message<ConfigError>(), HasSubstr("exactly one of"));
}

TEST_F(BertBatchesTest, MalformedDataAreRejectedOrSkipped) {
  data_.split = "1,0,0";
  data_.data_path = {write({})};
  EXPECT_THAT(error_message<DataError>(), HasSubstr("a document must have 2 or more sentences"));
  data_.data_path = {write({{30}, {40}})};  // preprocessed without --split-sentences
  EXPECT_THAT(error_message<DataError>(), HasSubstr("got no such document among 0 to 2"));
  sentence_order_ = false;
  EXPECT_EQ(error_message<DataError>(), "");
  sentence_order_ = true;
  data_.data_path = {write({{600, 3}, {4, 4}})};
  EXPECT_EQ(error_message<DataError>(), "");
  data_.data_path = {write({{0, 0}, {0, 3}})};  // some have nothing to mask
  EXPECT_EQ(error_message<DataError>(), "");
  data_.data_path = {write({{4, 4}, {5}})};
  data_.split = "50,50,0";
  EXPECT_EQ(open()[1], nullptr);
}

}  // namespace
}  // namespace colonnade::data
