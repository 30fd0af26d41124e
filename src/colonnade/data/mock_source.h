// Mock token sequences, equal to those of Megatron's --mock-data.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/data/indexed/token_source.h"

namespace colonnade::data {

/// 100,000 sequences whose lengths are default_rng(0).integers(1, 4096). Tokens are 1, 2, ..., length - 1
/// modulo the vocabulary size, then the end of document.
class MockSource final : public TokenSource {
 public:
  MockSource(std::int64_t vocab_size, std::int64_t eod);
  [[nodiscard]] std::int64_t num_sequences() const override {
    return static_cast<std::int64_t>(lengths_.size());
  }
  [[nodiscard]] std::int64_t length(std::int64_t sequence) const override {
    return lengths_[static_cast<std::size_t>(sequence)];
  }
  void tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override { return "mock data"; }

 private:
  std::int64_t vocab_size_;
  std::int64_t eod_;
  std::vector<std::int32_t> lengths_;
};

/// Mock documents of several sentences, which Megatron does not have: the first 10,000 sequences of
/// MockSource, split into sentences of 64 tokens. Token ids count up from `first` modulo `ids`.
class MockSentences final : public TokenSource {
 public:
  MockSentences(std::int64_t first, std::int64_t ids);
  [[nodiscard]] std::int64_t num_sequences() const override { return starts_.back(); }
  [[nodiscard]] std::int64_t length(std::int64_t sequence) const override {
    return lengths_[static_cast<std::size_t>(sequence)];
  }
  [[nodiscard]] std::int64_t num_documents() const override {
    return static_cast<std::int64_t>(starts_.size()) - 1;
  }
  [[nodiscard]] std::int64_t document_start(std::int64_t document) const override {
    return starts_[static_cast<std::size_t>(document)];
  }
  void tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override { return "mock data"; }

 private:
  std::int64_t first_;
  std::int64_t ids_;
  std::vector<std::int64_t> starts_;  ///< first sequence of each document
  std::vector<std::int32_t> lengths_;
};

}  // namespace colonnade::data
