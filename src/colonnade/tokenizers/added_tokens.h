// Added tokens: matched in the input before the tokenizer pipeline runs.
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
  bool special = false;                          ///< skipped in decoding
  bool normalized = false;                       ///< matched in the normalized text
  bool single_word = false;                      ///< matched only with no adjacent word character
  bool left_strip = false, right_strip = false;  ///< whether the match includes adjacent white space
};

/// A set of added tokens that are matched together.
class AddedTokens {
 public:
  /// Adds a token that is matched by `pattern`: its content, or its normalized content. Throws DataError if
  /// another token has the same pattern.
  void add(const AddedToken& token, std::string_view pattern);

  [[nodiscard]] bool empty() const { return tokens_.empty(); }

  /// A segment of a text: a token, or text between tokens (id -1).
  struct Segment {
    std::string_view text;
    std::int32_t id;
  };
  /// Splits valid UTF-8 at the tokens. The leftmost match wins, then the longest.
  [[nodiscard]] std::vector<Segment> split(std::string_view text) const;

 private:
  /// Whether `single_word` of the token allows a match at [begin, end).
  [[nodiscard]] bool may_match(const AddedToken& token, std::string_view text, std::size_t begin,
                               std::size_t end) const;

  /// The next offset at or after `at` whose byte may start a token.
  [[nodiscard]] std::size_t next_candidate(std::string_view text, std::size_t at) const;
  /// The next token at or after `begin`, which becomes its offset; null if there is none.
  [[nodiscard]] const AddedToken* next(std::string_view text, std::size_t& begin, std::size_t& end) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;                        ///< pattern to index in tokens_
  std::array<bool, 256> first_bytes_{};  ///< bytes that start a token
  int only_first_byte_ = -1;             ///< the one byte that starts all tokens; -1 if there are several
};

}  // namespace colonnade::tokenizers
