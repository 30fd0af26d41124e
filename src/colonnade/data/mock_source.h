// Invented token sequences, equal to Megatron's --mock-data.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/data/token_source.h"

namespace colonnade::data {

/// 100,000 sequences whose lengths are default_rng(0).integers(1, 4096): tokens 1, 2, ..., length - 1 modulo
/// the vocabulary, then the end of document.
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

}  // namespace colonnade::data
