// Documents of sentences for the tests of masked data.
#pragma once

#include "colonnade/data/token_source.h"
#include "data/vectors.h"

namespace colonnade::data {

/// Documents of sentences of given lengths, whose tokens count upwards over the whole source from 10 on.
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

/// Which ids of the vectors' vocabulary continue a word.
inline std::vector<bool> word_pieces() {
  const auto file = nlohmann::json::parse(read_file(vector_path("tokenizers/bert_wordpiece.json")));
  const auto& vocabulary = file["model"]["vocab"];
  std::vector<bool> continues(vocabulary.size());
  for (const auto& [piece, id] : vocabulary.items())
    continues[id.get<std::size_t>()] = piece.starts_with("##");
  return continues;
}

}  // namespace colonnade::data
