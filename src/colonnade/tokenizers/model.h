// The models of a tokenizer.json: a word in, ids out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/merges.h"
#include "colonnade/tokenizers/vocabulary.h"

namespace colonnade::tokenizers {

/// Const functions are safe to call from many threads.
class Model {
 public:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  /// Appends the ids of a word, not empty. Throws DataError when it has none.
  virtual void encode(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  /// Appends the ids of the tokens <0x00> to <0xFF> of `bytes`; false, and nothing, when one is missing.
  [[nodiscard]] bool add_bytes(std::string_view bytes, std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
};

/// Byte pair encoding of characters.
struct BpeOptions {
  std::string continuing_prefix;  ///< in front of characters that do not begin a word
  std::string end_suffix;         ///< behind the last character of a word
  std::optional<std::string> unknown;
  bool fuse_unknown = false, byte_fallback = false;
  bool ignore_merges = false;  ///< a word that is a token is that token
};
class BpeModel final : public Model {
 public:
  /// Throws DataError, with `where` in front, when the unknown token has no id.
  BpeModel(Vocabulary vocabulary, Merges merges, const BpeOptions& options, const std::string& where);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;
  [[nodiscard]] const Merges& merges() const { return merges_; }
  [[nodiscard]] const BpeOptions& options() const { return options_; }

 private:
  [[nodiscard]] std::vector<std::int32_t> characters(std::string_view word) const;

  Merges merges_;
  BpeOptions options_;
  std::int32_t unknown_ = -1;
};

/// Longest match from the left; a word with a gap is one unknown token.
struct WordPieceOptions {
  std::string unknown = "[UNK]", continuing_prefix = "##";
  std::int64_t most_chars = 100;  ///< longer words are unknown
};
class WordPieceModel final : public Model {
 public:
  WordPieceModel(Vocabulary vocabulary, const WordPieceOptions& options, const std::string& where);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  WordPieceOptions options_;
  ByteTree begins_, continued_;  ///< tokens; those with the prefix, without it
  std::int32_t unknown_ = -1;
};

/// Whole words.
class WordLevelModel final : public Model {
 public:
  WordLevelModel(Vocabulary vocabulary, std::string unknown);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  std::string unknown_text_;
  std::int32_t unknown_ = -1;
};

/// The most probable cut, scores added from left to right in float64; of equally good ones the first found.
class UnigramModel final : public Model {
 public:
  /// `scores` by id. unknown -1: a character without a token is an error.
  UnigramModel(Vocabulary vocabulary, std::vector<double> scores, std::int32_t unknown, bool byte_fallback);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  void add_unknown(std::string_view run, std::vector<std::int32_t>& ids) const;

  std::vector<double> scores_;
  ByteTree tree_;
  std::int32_t unknown_ = -1;
  bool byte_fallback_ = false;
  double unknown_score_ = 0;
};

}  // namespace colonnade::tokenizers
