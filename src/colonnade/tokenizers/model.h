// The models of a tokenizer.json: they encode one word at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/merges.h"
#include "colonnade/tokenizers/vocabulary.h"

namespace colonnade::tokenizers {

/// Base of the models. Const functions are thread-safe.
class Model {
 public:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  /// Appends the ids of a nonempty word. Throws DataError if it cannot be encoded.
  virtual void encode(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  /// Appends the ids of the byte tokens <0x00> to <0xFF> of `bytes`. If one is missing, appends nothing and
  /// returns false.
  [[nodiscard]] bool add_bytes(std::string_view bytes, std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
};

struct BpeOptions {
  std::string continuing_prefix;  ///< prefix of the characters after a word's first
  std::string end_suffix;         ///< suffix of a word's last character
  std::optional<std::string> unknown;
  bool fuse_unknown = false, byte_fallback = false;
  bool ignore_merges = false;  ///< whether a word in the vocabulary is one token regardless of the merges
};
/// BPE over characters.
class BpeModel final : public Model {
 public:
  /// Throws DataError that starts with `where` if the unknown token is not in the vocabulary.
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

struct WordPieceOptions {
  std::string unknown = "[UNK]", continuing_prefix = "##";
  std::int64_t max_chars = 100;  ///< longer words are unknown
};
/// Greedy longest-match-first; a word that tokens do not cover is one unknown token.
class WordPieceModel final : public Model {
 public:
  WordPieceModel(Vocabulary vocabulary, const WordPieceOptions& options, const std::string& where);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  WordPieceOptions options_;
  ByteTrie initial_, continuing_;  ///< all tokens; those with the prefix, without it
  std::int32_t unknown_ = -1;
};

/// A vocabulary of whole words.
class WordLevelModel final : public Model {
 public:
  WordLevelModel(Vocabulary vocabulary, std::string unknown);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  std::string unknown_text_;
  std::int32_t unknown_ = -1;
};

/// The segmentation with the best sum of scores, summed from left to right in float64; the first found wins
/// ties.
class UnigramModel final : public Model {
 public:
  /// `scores`: by id. `unknown`: -1 makes a character without a token an error.
  UnigramModel(Vocabulary vocabulary, std::vector<double> scores, std::int32_t unknown, bool byte_fallback);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  void add_unknown(std::string_view run, std::vector<std::int32_t>& ids) const;

  std::vector<double> scores_;
  ByteTrie trie_;
  std::int32_t unknown_ = -1;
  bool byte_fallback_ = false;
  double unknown_score_ = 0;
};

}  // namespace colonnade::tokenizers
