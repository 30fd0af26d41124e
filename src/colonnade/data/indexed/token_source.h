// Interface of tokenized data: numbered sequences of token ids.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace colonnade::data {

/// Numbered sequences of token ids. Const functions are thread-safe.
class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;
  virtual ~TokenSource() = default;

  [[nodiscard]] virtual std::int64_t num_sequences() const = 0;

  /// Length of a sequence in tokens. Precondition, unchecked: 0 <= sequence < num_sequences().
  [[nodiscard]] virtual std::int64_t length(std::int64_t sequence) const = 0;

  /// Number of documents. A document is a range of consecutive sequences; by default one sequence.
  [[nodiscard]] virtual std::int64_t num_documents() const { return num_sequences(); }
  /// First sequence of a document; num_sequences() for document num_documents(). Unchecked.
  [[nodiscard]] virtual std::int64_t document_start(std::int64_t document) const { return document; }

  /// Copies tokens [offset, offset + out.size()) of a sequence. Throws DataError if they exceed it.
  virtual void tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const = 0;

  /// Starts reading these tokens from disk in the background, so that several ranges load in parallel.
  virtual void prefetch(std::int64_t /*sequence*/, std::int64_t /*offset*/, std::int64_t /*count*/) const {}

  /// Name in messages: the path prefix, or "mock data".
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace colonnade::data
