// Document bounds of GPT batches: ends of documents, and sequences of the data.
#include <gtest/gtest.h>

#include <array>

#include "colonnade/base/log.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "colonnade/data/samples/gpt/gpt_sample.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

using Ints = std::vector<std::int64_t>;

const TokenIds kIds{.vocab_size = 1025, .eod = 1024};

config::Data data_in(const test::TempFolder& folder) {
  log::set_level(log::Level::kError);
  config::Data data;
  data.data_cache_path = folder / "cache";
  return data;
}

config::Training training_of(std::int64_t seq_length) {
  config::Training training;
  training.seq_length = seq_length;
  training.global_batch_size = 8;
  training.train_iters = 1;
  training.eval_iters = 0;
  return training;
}

TEST(GptSample, ResetsMasksAndPositionsAfterEachDocument) {
  const Ints text{5, 9, 7, 9, 3, 4, 1};
  const SampleRules rules{.eod = 9, .reset_position_ids = true, .eod_mask_loss = true};
  Ints tokens(6), labels(6), positions(6);
  std::vector<float> loss_mask(6);
  fill_sample(text, rules, {tokens, labels, positions, loss_mask});
  EXPECT_EQ(loss_mask, (std::vector<float>{1, 0, 1, 0, 1, 1}));
  EXPECT_EQ(positions, (Ints{0, 1, 0, 1, 0, 1}));
  Ints starts;
  add_document_starts(tokens, 9, 12, starts);
  EXPECT_EQ(starts, (Ints{12, 14, 16}));
  add_document_starts(Ints{9, 9}, 9, 18, starts);
  EXPECT_EQ(starts, (Ints{12, 14, 16, 18, 19})) << "an end at the last position starts no document";
}

/// 60 sequences of 1 to 30 tokens without ends of documents; all tokens of a sequence are its number.
std::string numbered_sequences(const std::string& prefix) {
  IndexedDatasetBuilder builder(prefix, TokenType::kUint16);
  for (std::int32_t number = 0; number < 60; ++number) {
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(1 + number * 7 % 30), number);
    builder.add_document(tokens, std::array{static_cast<std::int32_t>(tokens.size())});
  }
  builder.finalize();
  return prefix;
}

TEST(DocumentBounds, InterDocumentMaskingSeparatesTheSequencesOfTheData) {
  const test::TempFolder folder;
  config::Data data = data_in(folder);
  data.data_path = {numbered_sequences(folder / "numbered")};
  data.split = "1,0,0";
  data.inter_document_masking = true;

  const Splits splits = open_gpt_batches(data, training_of(64), kIds);
  const HostBatch batch = splits[0]->get(0, 8);
  Ints bounds, positions;
  for (std::int64_t at = 0; at < 8 * 64; ++at) {
    const auto i = static_cast<std::size_t>(at);
    if (at % 64 == 0 || batch.tokens[i] != batch.tokens[i - 1]) bounds.push_back(at);
    positions.push_back(at - bounds.back());
  }
  bounds.push_back(8 * 64);
  EXPECT_GT(bounds.size(), 20U);
  EXPECT_EQ(batch.cu_seqlens, bounds);
  EXPECT_EQ(batch.position_ids, positions);
}

/// 5 sequences of 19 to 23 tokens and an end each.
std::string ended_sequences(const std::string& prefix, std::int32_t eod) {
  IndexedDatasetBuilder builder(prefix, TokenType::kUint16);
  for (std::int32_t number = 0; number < 5; ++number) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(20 + number), 5 + number);
    tokens.back() = eod;
    builder.add_document(tokens, std::array{static_cast<std::int32_t>(tokens.size())});
  }
  builder.finalize();
  return prefix;
}

// Pads become token 0 in the inputs; neither that nor an end of document with id 0 may move a bound.
TEST(DocumentBounds, EndsAreThoseOfTheTextBeforePadsAreReplaced) {
  for (const auto& [eod, pad] : {std::pair<std::int32_t, std::int64_t>{9, 9}, {0, 3}}) {
    const test::TempFolder folder;
    config::Data data = data_in(folder);
    data.data_path = {ended_sequences(folder / "ended", eod)};
    data.split = "1,0,0";
    data.reset_attention_mask = data.reset_position_ids = true;
    const HostBatch batch =
        open_gpt_batches(data, training_of(50), {.vocab_size = 1025, .eod = eod, .pad = pad})[0]->get(0, 1);
    Ints bounds;
    for (std::int64_t at = 0; at < 50; ++at)
      if (batch.position_ids[static_cast<std::size_t>(at)] == 0) bounds.push_back(at);
    bounds.push_back(50);
    EXPECT_GE(bounds.size(), 3U);
    EXPECT_EQ(batch.cu_seqlens, bounds) << "eod " << eod << " pad " << pad;
  }
}

TEST(DocumentBounds, DocumentBoundsTakeLittleMemory) {
  const test::TempFolder folder;
  config::Data data = data_in(folder);
  data.mock_data = true;
  data.reset_attention_mask = data.reset_position_ids = true;

  const HostBatch batch = open_gpt_batches(data, training_of(4096), kIds)[0]->get(0, 8);
  EXPECT_GE(batch.cu_seqlens.size(), 9U);
  EXPECT_LT(batch.cu_seqlens.capacity() * sizeof(std::int64_t), 1U << 20U);
}

}  // namespace
}  // namespace colonnade::data
