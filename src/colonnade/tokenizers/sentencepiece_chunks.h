// Boundaries at which a long text can be split for a SentencePiece model without changing its encoding.
#pragma once

#include <cstddef>
#include <string_view>

namespace colonnade::tokenizers {

/// Finds chunk boundaries by the normalizer and the pieces of a model.
class ChunkBoundaries {
 public:
  /// Reads the bytes of a .model file. `only_normalized`: whether only the normalized texts of the chunks,
  /// not their ids, must concatenate to those of the whole text.
  ChunkBoundaries(std::string_view model, bool only_normalized);

  struct Boundary {
    std::size_t end = 0;    ///< end of the chunk before the boundary
    std::size_t begin = 0;  ///< start of the chunk after the boundary
    bool adds_mark =
        false;  ///< whether the model prepends a space mark to the chunk that the text does not have
  };
  /// The next boundary whose `end` is at or after `from` (> 0); the end of the text if there is none.
  [[nodiscard]] Boundary next(std::string_view text, std::size_t from) const;
  /// Approximate bytes of the normalized text, and a fast upper bound.
  [[nodiscard]] std::size_t normalized_size(std::string_view text) const;
  [[nodiscard]] std::size_t max_normalized_size(std::string_view text) const;

 private:
  void read_piece(std::string_view message);
  void read_normalizer(std::string_view message);

  bool known_rules_ = true;                      ///< whether the normalization rules are known
  bool identity_ = true;                         ///< whether there are no normalization rules
  bool add_dummy_prefix_ = true;                 ///< add_dummy_prefix
  bool remove_extra_whitespaces_ = true;         ///< remove_extra_whitespaces
  bool whitespace_is_suffix_ = false;            ///< treat_whitespace_as_suffix
  bool byte_fallback_ = false;                   ///< byte_fallback
  bool has_mark_ = false, has_newline_ = false;  ///< whether a piece is exactly that
  bool pieces_span_spaces_ = false,
       pieces_span_newlines_ = false;  ///< whether a piece contains one among other characters
  bool non_ascii_user_defined_ =
      false;  ///< whether user-defined pieces have other characters than visible ASCII
  bool only_normalized_;
};

}  // namespace colonnade::tokenizers
