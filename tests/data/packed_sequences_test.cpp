// Packed sequences cover every token, and an end of document belongs to the sequence that it ends.
#include "colonnade/data/samples/gpt/packed_sequences.h"

#include <gtest/gtest.h>

#include "colonnade/data/samples/gpt/gpt_sample.h"

namespace colonnade::data {
namespace {

constexpr std::int64_t kEod = 9;

/// A batch as GptBatches makes it, of rows of equal length plus one label.
HostBatch batch_of(const std::vector<std::vector<std::int64_t>>& texts) {
  HostBatch batch;
  batch.micro_batch = static_cast<std::int64_t>(texts.size());
  batch.seq = static_cast<std::int64_t>(texts.front().size()) - 1;
  const auto s = static_cast<std::size_t>(batch.seq);
  const std::size_t n = texts.size() * s;
  batch.tokens.resize(n), batch.labels.resize(n), batch.position_ids.resize(n), batch.loss_mask.resize(n);
  for (std::size_t row = 0; row < texts.size(); ++row) {
    const auto part = [&](auto& all) { return std::span(all).subspan(row * s, s); };
    fill_sample(texts[row], {.eod = kEod, .reset_position_ids = true},
                {part(batch.tokens), part(batch.labels), part(batch.position_ids), part(batch.loss_mask)});
    add_document_starts(part(batch.tokens), kEod, static_cast<std::int64_t>(row * s), batch.cu_seqlens);
  }
  batch.cu_seqlens.push_back(static_cast<std::int64_t>(n));
  return batch;
}

TEST(PackedSequences, EndAtTheirEndOfDocumentOrAtTheRow) {
  EXPECT_EQ(packed_sequences(batch_of({{1, 2, kEod, 3, 4, 5, 6}, {kEod, kEod, 1, 2, 3, kEod, 4}})),
            (std::vector<PackedSequence>{{0, 0, 3}, {0, 3, 3}, {1, 0, 1}, {1, 1, 1}, {1, 2, 4}}));
}

TEST(PackedSequences, AreRowsWithoutDocuments) {
  HostBatch batch = batch_of({{1, kEod, 2, 3}, {1, 2, 3, 4}});
  EXPECT_EQ(packed_sequences(batch).size(), 3U);
  batch.cu_seqlens.clear();
  EXPECT_EQ(packed_sequences(batch), (std::vector<PackedSequence>{{0, 0, 3}, {1, 0, 3}}));
}

TEST(PackedSequences, AreRowsWithoutEndsOfDocuments) {
  EXPECT_EQ(packed_sequences(batch_of({{1, 2, 3, 4}, {5, 6, 7, kEod}})),
            (std::vector<PackedSequence>{{0, 0, 3}, {1, 0, 3}}))
      << "the last label is not an input";
}

}  // namespace
}  // namespace colonnade::data
