// Tokens beside the vocabulary of a model, found in a text before anything else is done to it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/vocabulary.h"

namespace colonnade::tokenizers {

struct AddedToken {
  std::string content;
  std::int32_t id = -1;
  bool special = false;                          ///< not text: decoding leaves it out
  bool normalized = false;                       ///< sought in the normalized text
  bool single_word = false;                      ///< only where no word character stands beside it
  bool left_strip = false, right_strip = false;  ///< takes the white space beside it along
};

/// A set of added tokens that are sought together.
class AddedTokens {
 public:
  /// Adds a token that is found by `pattern` (its content, or that normalized). Throws DataError for a
  /// pattern that another token has.
  void add(const AddedToken& token, std::string_view pattern);

  [[nodiscard]] bool empty() const { return tokens_.empty(); }

  /// A part of a text: a token, or text between tokens (id -1).
  struct Part {
    std::string_view text;
    std::int32_t id;
  };
  /// Cuts valid UTF-8 at the tokens: of all matches the leftmost, of those the longest.
  [[nodiscard]] std::vector<Part> cut(std::string_view text) const;

 private:
  [[nodiscard]] bool fits(const AddedToken& token, std::string_view text, std::size_t begin,
                          std::size_t end) const;

  /// The next place from `at` on where a token may begin.
  [[nodiscard]] std::size_t seek(std::string_view text, std::size_t at) const;
  /// The next token from `begin` on, with its place; null: there is none.
  [[nodiscard]] const AddedToken* next(std::string_view text, std::size_t& begin, std::size_t& end) const;

  std::vector<AddedToken> tokens_;
  ByteTree tree_;                   ///< number: place in tokens_
  std::array<bool, 256> begins_{};  ///< bytes that a token begins with
  int sole_ = -1;                   ///< the only one of them; -1: there are more
};

}  // namespace colonnade::tokenizers
