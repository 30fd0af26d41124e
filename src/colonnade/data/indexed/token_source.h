// What samples are cut from: numbered sequences of token ids.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace colonnade::data {

/// Numbered sequences of token ids. Const functions are safe to call from many threads.
class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;
  virtual ~TokenSource() = default;

  [[nodiscard]] virtual std::int64_t num_sequences() const = 0;

  /// Tokens of a sequence. Not checked: 0 <= sequence < num_sequences().
  [[nodiscard]] virtual std::int64_t length(std::int64_t sequence) const = 0;

  /// Documents, each of which is some sequences that follow each other; here every sequence is one.
  [[nodiscard]] virtual std::int64_t num_documents() const { return num_sequences(); }
  /// First sequence of a document; document num_documents() gives num_sequences(). Not checked.
  [[nodiscard]] virtual std::int64_t document_start(std::int64_t document) const { return document; }

  /// Copies tokens [offset, offset + out.size()) of a sequence. Throws DataError outside of it.
  virtual void tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const = 0;

  /// Says that these tokens are read soon: several places that are announced together come from the disk at
  /// once.
  virtual void announce(std::int64_t /*sequence*/, std::int64_t /*offset*/, std::int64_t /*count*/) const {}

  /// How messages call it: the path prefix, or "mock data".
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace colonnade::data
