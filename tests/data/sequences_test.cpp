// Sequences between ends of documents: every token in one, an end of document with what it ends.
#include "colonnade/data/samples/gpt/sequences.h"

#include <gtest/gtest.h>

#include "colonnade/data/samples/gpt/gpt_sample.h"

namespace colonnade::data {
namespace {

constexpr std::int64_t kEod = 9;

/// As GptBatches makes it, of rows of one length and a label each.
HostBatch batch_of(const std::vector<std::vector<std::int64_t>>& texts) {
  HostBatch batch;
  batch.micro_batch = static_cast<std::int64_t>(texts.size());
  batch.seq = static_cast<std::int64_t>(texts.front().size()) - 1;
  const auto s = static_cast<std::size_t>(batch.seq);
  const std::size_t n = texts.size() * s;
  batch.tokens.resize(n), batch.labels.resize(n), batch.position_ids.resize(n), batch.loss_mask.resize(n);
  for (std::size_t row = 0; row < texts.size(); ++row) {
    const auto part = [&](auto& all) { return std::span(all).subspan(row * s, s); };
    fill_sample(texts[row], {.eod = kEod, .reset_position_ids = true, .reset_attention_mask = true},
                {part(batch.tokens), part(batch.labels), part(batch.position_ids), part(batch.loss_mask)});
  }
  return batch;
}

TEST(Sequences, EndWithTheirEndOfDocumentOrWithTheRow) {
  EXPECT_EQ(sequences(batch_of({{1, 2, kEod, 3, 4, 5, 6}, {kEod, kEod, 1, 2, 3, kEod, 4}})),
            (std::vector<Sequence>{{0, 0, 3}, {0, 3, 3}, {1, 0, 1}, {1, 1, 1}, {1, 2, 4}}));
}

TEST(Sequences, AreWholeRowsWithoutPositions) {
  HostBatch batch = batch_of({{1, kEod, 2, 3}, {1, 2, 3, 4}});
  EXPECT_EQ(sequences(batch).size(), 3U);
  batch.position_ids.clear();
  EXPECT_EQ(sequences(batch), (std::vector<Sequence>{{0, 0, 3}, {1, 0, 3}}));
}

TEST(Sequences, AreWholeRowsWithoutEndsOfDocuments) {
  EXPECT_EQ(sequences(batch_of({{1, 2, 3, 4}, {5, 6, 7, kEod}})),
            (std::vector<Sequence>{{0, 0, 3}, {1, 0, 3}}))
      << "the last label is no token";
}

}  // namespace
}  // namespace colonnade::data
