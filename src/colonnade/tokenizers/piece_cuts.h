// Where a long text may be cut for a SentencePiece model, so that its parts give what the whole gives.
#pragma once

#include <cstddef>
#include <string_view>

namespace colonnade::tokenizers {

/// What is known of a model: how it normalizes, and which pieces it has.
class PieceCuts {
 public:
  /// Reads the bytes of a .model file. `only_normalized`: the normalized texts of the parts must make that of
  /// the whole; else their ids must.
  PieceCuts(std::string_view model, bool only_normalized);

  struct Cut {
    std::size_t end = 0;    ///< of the part in front
    std::size_t begin = 0;  ///< of the part behind
    bool marked = false;    ///< the part behind gets a mark of a space in front that the text has not
  };
  /// The next cut with its `end` at or behind `from`, which is not 0; the end of the text where none is
  /// known.
  [[nodiscard]] Cut next(std::string_view text, std::size_t from) const;
  /// Bytes of the text once it is normalized, about; or, at once, what they are at most.
  [[nodiscard]] std::size_t normalized_size(std::string_view text) const;
  [[nodiscard]] std::size_t most_normalized(std::string_view text) const;

 private:
  void read_piece(std::string_view message);
  void read_normalizer(std::string_view message);

  bool known_ = true;        ///< the rules of normalization are
  bool identity_ = true;     ///< and are none
  bool prefix_ = true;       ///< a space is put in front of a text
  bool one_space_ = true;    ///< of several, and none at both ends
  bool suffix_ = false;      ///< pieces end with spaces instead of beginning with them
  bool falls_back_ = false;  ///< to bytes
  bool has_mark_ = false, has_newline_ = false;
  bool spans_spaces_ = false, spans_newlines_ = false;
  bool odd_symbols_ = false;  ///< user-defined ones of other than visible ASCII
  bool only_normalized_;
};

}  // namespace colonnade::tokenizers
