// Document lengths and token checks: ids, missing ends of documents, duplicates, also with little memory.
#include "colonnade/data/indexed/inspect.h"

#include <gtest/gtest.h>

#include "colonnade/data/indexed/indexed_dataset.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

using Ids = std::vector<std::int32_t>;

void write(const std::string& prefix, const std::vector<Ids>& documents) {
  IndexedDatasetBuilder builder(prefix, TokenType::kInt32);
  for (const Ids& ids : documents) {
    if (ids.empty())
      builder.end_document();
    else
      builder.add_document(ids, Ids{static_cast<std::int32_t>(ids.size())});
  }
  builder.finalize();
}

TEST(LengthHistogram, CountsLengthsOfAnySize) {
  LengthHistogram lengths;
  for (const std::int64_t length : {5, 0, 70'000, 3, 3, 200'000, 0, 65'536, 65'535}) lengths.add(length);
  EXPECT_EQ(lengths.count(), 9);
  EXPECT_EQ(lengths.empty(), 2);
  EXPECT_EQ(lengths.quantile(0), 0);
  EXPECT_EQ(lengths.quantile(0.5), 5);
  EXPECT_EQ(lengths.quantile(1), 200'000);
  EXPECT_EQ(lengths.longer_than(3), 5);
  EXPECT_EQ(lengths.longer_than(65'535), 3);
  EXPECT_EQ(lengths.longer_than(70'000), 1);
  EXPECT_EQ(LengthHistogram().quantile(1), 0);
}

TEST(ScanTokens, ReportsInvalidIdsMissingEndsAndDuplicates) {
  const test::TempFolder folder;
  write(folder / "set", {{1, 2, 9}, {}, {4, 5, 6}, {1, 2, 9}, {7, 120, 9}, {300, 9}, {1, 2, 9}, {9}, {9}});
  const IndexedDataset set(folder / "set");
  const TokenFacts facts = scan_tokens(set, {.vocab_size = 100, .eod = 9});
  EXPECT_EQ(facts.max_id, 300);
  EXPECT_EQ(facts.out_of_vocabulary, 2);
  EXPECT_EQ(facts.first_out_of_vocabulary, 4);
  EXPECT_EQ(facts.without_eod, 1);
  EXPECT_EQ(facts.first_without_eod, 2);
  EXPECT_EQ(facts.duplicates, 3);
  EXPECT_EQ(facts.duplicate_tokens, 7);
  EXPECT_EQ(facts.duplicate_pairs,
            (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 3}, {0, 6}, {7, 8}}));
  const LengthHistogram lengths = document_lengths(set);
  EXPECT_EQ(lengths.empty(), 1);
  EXPECT_EQ(lengths.quantile(1), 3);
  const TokenFacts unchecked = scan_tokens(set, {});
  EXPECT_EQ(unchecked.out_of_vocabulary, 0);
  EXPECT_EQ(unchecked.without_eod, 0);
}

TEST(ScanTokens, FindsDuplicatesWithLittleMemory) {
  const test::TempFolder folder;
  std::vector<Ids> documents;
  for (std::int32_t i = 0; i < 50'000; ++i) documents.push_back({i % 30'000, i % 30'000 / 7});
  write(folder / "set", documents);
  const IndexedDataset set(folder / "set");
  for (const std::int64_t memory : {std::int64_t{1} << 28, std::int64_t{1} << 14}) {
    const TokenFacts facts = scan_tokens(set, {.memory = memory});
    EXPECT_EQ(facts.duplicates, 20'000) << memory;
    EXPECT_EQ(facts.duplicate_tokens, 40'000) << memory;
    ASSERT_EQ(facts.duplicate_pairs.size(), 10U) << memory;
  }
}

/// Equal tokens, split into different sequences.
TEST(ScanTokens, DocumentsOfDifferentSequencesAreNotEqual) {
  const test::TempFolder folder;
  IndexedDatasetBuilder builder(folder / "set", TokenType::kInt32);
  for (const Ids& lengths : {Ids{2, 2}, Ids{1, 3}, Ids{2, 2}}) builder.add_document(Ids{1, 2, 3, 4}, lengths);
  builder.finalize();
  const TokenFacts facts = scan_tokens(IndexedDataset(folder / "set"), {});
  EXPECT_EQ(facts.duplicates, 1);
  EXPECT_EQ(facts.duplicate_pairs, (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 2}}));
}

}  // namespace
}  // namespace colonnade::data
