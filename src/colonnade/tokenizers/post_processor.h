// The post-processors of a tokenizer.json: they add special tokens to a text or a pair of texts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace colonnade::tokenizers {

/// Ids and the token type (segment) of each.
struct Encoding {
  std::vector<std::int32_t> ids, type_ids;
};

/// A template of texts and special tokens.
class PostProcessor {
 public:
  /// The first text ($A), the second text ($B), or special tokens.
  struct Piece {
    enum class Kind { kSequenceA, kSequenceB, kSpecialToken } kind = Kind::kSequenceA;
    std::vector<std::int32_t> ids;  ///< ids of special tokens; else empty
    std::int32_t type_id = 0;
  };
  /// The templates for one text and for a pair.
  PostProcessor(std::vector<Piece> single, std::vector<Piece> pair)
      : single_(std::move(single)), pair_(std::move(pair)) {}
  /// A processor that adds nothing; the texts have types 0 and 1.
  PostProcessor();

  [[nodiscard]] Encoding single(std::span<const std::int32_t> text, bool with_special) const;
  [[nodiscard]] Encoding pair(std::span<const std::int32_t> first, std::span<const std::int32_t> second,
                              bool with_special) const;
  /// Adds the special ids of a single text to its ids, in place.
  void add_special_tokens(std::vector<std::int32_t>& ids) const;
  /// All special ids of the template for a single text.
  [[nodiscard]] std::vector<std::int32_t> special_ids_of_single() const;

 private:
  std::vector<Piece> single_, pair_;
};

}  // namespace colonnade::tokenizers
