// Documents of sentences for tests of masked data.
#pragma once

#include <gtest/gtest.h>

#include <numeric>

#include "colonnade/base/log.h"
#include "colonnade/config/training.h"
#include "colonnade/data/batches.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/samples/t5/t5_dataset.h"
#include "support/files.h"

namespace colonnade::data {

/// Documents of sentences of given lengths; token ids count up from 10 over the whole source.
class Sentences final : public TokenSource {
 public:
  explicit Sentences(const std::vector<std::vector<std::int64_t>>& documents) {
    for (const auto& document : documents) {
      starts_.push_back(static_cast<std::int64_t>(lengths_.size()));
      lengths_.insert(lengths_.end(), document.begin(), document.end());
    }
    starts_.push_back(static_cast<std::int64_t>(lengths_.size()));
  }
  [[nodiscard]] std::int64_t num_sequences() const override {
    return static_cast<std::int64_t>(lengths_.size());
  }
  [[nodiscard]] std::int64_t length(std::int64_t i) const override {
    return lengths_[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] std::int64_t num_documents() const override {
    return static_cast<std::int64_t>(starts_.size()) - 1;
  }
  [[nodiscard]] std::int64_t document_start(std::int64_t i) const override {
    return starts_[static_cast<std::size_t>(i)];
  }
  void tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const override {
    std::int64_t next = 10 + offset;
    for (std::int64_t i = 0; i < sequence; ++i) next += length(i);
    for (std::int64_t& token : out) token = next++;
  }
  [[nodiscard]] std::string name() const override { return "sentences"; }

 private:
  std::vector<std::int64_t> lengths_, starts_;
};

/// Batches of sentence samples from Megatron's vector, or from a data set that a test writes.
class SentenceBatchesTest : public ::testing::Test {
 protected:
  SentenceBatchesTest() {
    log::set_level(log::Level::kError);
    data_.data_cache_path = folder_ / "cache";
    data_.data_path = {test::vector_path("indexed/bert_uint16")};
    data_.split = "80,20,0";
    training_.seq_length = 64;
    training_.global_batch_size = 8;
    training_.train_iters = 30;
    training_.eval_iters = 2;
    training_.seed = 99;
  }
  ~SentenceBatchesTest() override { log::set_level(log::Level::kInfo); }

  [[nodiscard]] virtual Splits open() const = 0;
  template <typename E>
  [[nodiscard]] std::string error_message() const {
    return test::message_of<E>([this] {
      const Splits splits = open();
      if (splits[0] != nullptr) (void)splits[0]->get(0, 8);
    });
  }
  /// Writes a data set of documents with the given sentence lengths, all of token 7; returns its prefix.
  [[nodiscard]] std::string write(const std::vector<std::vector<std::int32_t>>& documents) const {
    IndexedDatasetBuilder builder(folder_ / "made", TokenType::kInt32);
    for (const std::vector<std::int32_t>& lengths : documents) {
      std::size_t tokens = 0;
      for (const std::int32_t length : lengths) tokens += static_cast<std::size_t>(length);
      builder.add_document(std::vector<std::int32_t>(tokens, 7), lengths);
    }
    builder.finalize();
    return folder_ / "made";
  }

  test::TempFolder folder_;
  config::Data data_;
  config::Training training_;
};

/// Per id of the vectors' vocabulary: whether it continues a word.
inline std::vector<bool> word_pieces() {
  const auto file = nlohmann::json::parse(read_file(test::vector_path("tokenizers/bert_wordpiece.json")));
  const auto& vocabulary = file["model"]["vocab"];
  std::vector<bool> continues(vocabulary.size());
  for (const auto& [piece, id] : vocabulary.items())
    continues[id.get<std::size_t>()] = piece.starts_with("##");
  return continues;
}

/// The plan of Megatron's T5 vectors: seed 13, encoder length 128, decoder length 64.
inline T5Plan megatrons_t5_plan(const TokenSource& source) {
  T5Plan plan{
      .encoder_length = 128,
      .decoder_length = 64,
      .sentences = {.documents = range_of(*parse_split("90,10,0")[0], source.num_documents()),
                    .max_length = 126,
                    .num_samples = 400,
                    .seed = 13},
      .masking = {.max_words = 10, .geometric = true, .cls = 2, .sep = 3, .continues_word = word_pieces()},
      .ids = {.vocab_size = 2102,
              .bos = 2100,
              .eos = 2101,
              .pad = 0,
              .sentinels = std::vector<std::int64_t>(100)}};
  std::iota(plan.ids.sentinels.begin(), plan.ids.sentinels.end(), 2000);
  return plan;
}

}  // namespace colonnade::data
