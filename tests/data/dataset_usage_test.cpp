// Spans of samples, and dataset usage counted from the tokens of samples.
#include "colonnade/data/dataset_usage.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "colonnade/config/training.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

using Ints = std::vector<std::int64_t>;

/// Writes `documents` of 1 to 9 tokens; token `at` of document d is base + 1000 d + at.
void write_documents(const std::string& prefix, std::int32_t documents, std::int32_t base) {
  IndexedDatasetBuilder builder(prefix, TokenType::kInt32);
  for (std::int32_t d = 0; d < documents; ++d) {
    std::vector<std::int32_t> ids;
    for (std::int32_t at = 0; at <= (d * 7) % 9; ++at) ids.push_back(base + 1000 * d + at);
    builder.add_document(ids, std::vector<std::int32_t>{static_cast<std::int32_t>(ids.size())});
  }
  builder.finalize();
}

struct Folder {
  Folder() {
    write_documents(folder / "a", 30, 0);
    write_documents(folder / "b", 50, 1'000'000);
    data.split = "1,0,0";
  }
  [[nodiscard]] std::shared_ptr<const SampleSource> open(const std::vector<std::string>& words,
                                                         std::int64_t samples) {
    data.data_path = words;
    return open_gpt_samples(data, {samples, 0, 0}, 16, 7, {})[0];
  }
  test::TempFolder folder;
  config::Data data;
};

TEST(SampleSpans, HoldTheTokensOfTheSample) {
  Folder f;
  const auto source = f.open({"1", f.folder / "a", "2", f.folder / "b"}, 60);
  std::set<std::int64_t> sets;
  for (std::int64_t i = 0; i < source->size(); ++i) {
    Ints tokens(17), read;
    source->tokens(i, -1, tokens);
    for (const SampleSpan& piece : source->spans(i)) {
      sets.insert(piece.set);
      Ints part(static_cast<std::size_t>(piece.length));
      source->read(piece, part);
      EXPECT_EQ(part.front() % 1'000'000, 1000 * piece.sequence + piece.offset) << i;
      EXPECT_EQ(part.front() / 1'000'000, piece.set) << i;
      read.insert(read.end(), part.begin(), part.end());
    }
    EXPECT_EQ(read, tokens) << i;
  }
  EXPECT_EQ(sets.size(), 2U);
}

TEST(DatasetUsage, MatchesTheTokensOfTheSamples) {
  Folder f;
  const auto source = f.open({"1", f.folder / "a", "2", f.folder / "b"}, 60);
  std::vector<DatasetUsage> uses;
  for (const SampleOrder& order : source->orders()) uses.emplace_back(order);
  const std::vector<DatasetUsage*> sets{&uses[0], &uses[1]};
  std::map<std::int64_t, int> starts[2];
  std::int64_t tokens[2] = {0, 0}, samples[2] = {0, 0};
  std::set<std::int64_t> read[2], inputs[2];
  std::optional<std::int64_t> repeat[2];
  for (std::int64_t i = 0; i < 60; ++i) {
    add_usage(*source, i, i, sets);
    Ints text(17);
    source->tokens(i, -1, text);
    const auto set = static_cast<std::size_t>(text[0] / 1'000'000);
    ++samples[set];
    tokens[set] += 16;
    for (int at = 0; at < 16; ++at) read[set].insert(text[at] / 1000);
    for (int at = 0; at < 16; ++at) {  // the last token is only a label
      if (text[at] % 1000 == 0) ++starts[set][text[at]];
      if (!inputs[set].insert(text[at]).second && !repeat[set]) repeat[set] = i;
    }
  }
  for (const int set : {0, 1}) {
    const DatasetUsage::Sequences counts = uses[set].sequences();
    EXPECT_EQ(uses[set].samples(), samples[set]);
    EXPECT_EQ(uses[set].tokens(), tokens[set]);
    EXPECT_EQ(counts.all, set == 0 ? 30 : 50);
    EXPECT_EQ(counts.read, std::ssize(read[set]));
    EXPECT_EQ(counts.repeated,
              std::ranges::count_if(starts[set], [](const auto& each) { return each.second > 1; }));
    EXPECT_EQ(uses[set].first_repeat(), repeat[set]);
    EXPECT_TRUE(repeat[set].has_value()) << "the test needs a data set that is read twice";
    std::int64_t all = 0;
    for (int d = 0; d < (set == 0 ? 30 : 50); ++d) all += (d * 7) % 9 + 1;
    EXPECT_DOUBLE_EQ(uses[set].epochs(), static_cast<double>(tokens[set]) / static_cast<double>(all));
  }
}

SampleSpan piece(std::int64_t sequence, std::int64_t offset, std::int64_t labels = 1) {
  return {.sequence = sequence,
          .sequence_length = 100,
          .offset = offset,
          .length = 16 + labels,
          .labels = labels};
}

TEST(DatasetUsage, LongSequencesAreReadBeforeTheirStart) {
  DatasetUsage use({.tokens = 200, .sequences = {0, 2}});
  use.add(0, std::vector{piece(1, 32)});
  EXPECT_EQ(use.sequences().read, 1);
  use.add(1, std::vector{piece(1, 48), {.sequence = 0, .sequence_length = 100, .length = 1, .labels = 1}});
  EXPECT_EQ(use.sequences().read, 1) << "only a label of the other one";
  EXPECT_EQ(use.sequences().most, 0);
  use.add(2, std::vector{piece(1, 0)});
  EXPECT_EQ(use.sequences().most, 1);
  EXPECT_FALSE(use.first_repeat());
  use.add(3, std::vector{piece(1, 0)});
  EXPECT_EQ(use.first_repeat(), 3);
  EXPECT_EQ(use.sequences().most, 2);
}

TEST(DatasetUsage, RepeatedTokensAreFoundForAnySpans) {
  const std::vector<std::int64_t> first{64, 0, 32, 16, 80, 48};  // in any order, without 96 to 99
  for (const std::int64_t offset : {0, 1, 15, 40, 79, 95}) {
    DatasetUsage use({.tokens = 300, .sequences = {0, 3}});
    std::int64_t number = 0;
    for (const std::int64_t begin : first)
      for (const std::int64_t sequence : {2, 0, 1}) use.add(number++, std::vector{piece(sequence, begin)});
    ASSERT_FALSE(use.first_repeat()) << offset;
    use.add(number++,
            std::vector{SampleSpan{.sequence = 1, .sequence_length = 100, .offset = 96, .length = 4}});
    ASSERT_FALSE(use.first_repeat()) << "first read of the end";
    use.add(number,
            std::vector{SampleSpan{.sequence = 2, .sequence_length = 100, .offset = offset, .length = 1}});
    EXPECT_EQ(use.first_repeat(), number) << offset;
  }
  DatasetUsage full({.tokens = 100, .sequences = {0, 1}});
  full.add(0, std::vector{SampleSpan{.sequence = 0, .sequence_length = 100, .length = 100}});
  full.add(1, std::vector{piece(0, 48)});
  EXPECT_EQ(full.first_repeat(), 1);
}

TEST(DatasetUsage, FirstRepeatMatchesTheTokensOfLongDocuments) {
  test::TempFolder folder;
  IndexedDatasetBuilder builder(folder / "long", TokenType::kInt32);
  for (std::int32_t d = 0; d < 5; ++d) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(90 + 37 * d));
    std::iota(ids.begin(), ids.end(), 1000 * d);
    builder.add_document(ids, std::vector<std::int32_t>{static_cast<std::int32_t>(ids.size())});
  }
  builder.finalize();
  config::Data data;
  data.split = "1,0,0";
  data.data_path = {folder / "long"};
  std::set<std::int64_t> all_first;
  for (std::int64_t seed = 1; seed <= 20; ++seed) {
    const auto source = open_gpt_samples(data, {130, 0, 0}, 16, seed, {})[0];
    DatasetUsage use(source->orders()[0]);
    DatasetUsage* const sets[] = {&use};
    std::set<std::int64_t> inputs;
    std::optional<std::int64_t> repeat;
    for (std::int64_t i = 0; i < 130; ++i) {
      add_usage(*source, i, i, sets);
      Ints text(17);
      source->tokens(i, -1, text);
      for (int at = 0; at < 16; ++at)
        if (!inputs.insert(text[at]).second && !repeat) repeat = i;
    }
    ASSERT_TRUE(repeat);
    EXPECT_EQ(use.first_repeat(), repeat) << seed;
    all_first.insert(*repeat);
  }
  EXPECT_GT(all_first.size(), 1U);
}

}  // namespace
}  // namespace colonnade::data
