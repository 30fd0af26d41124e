// Special tokens around one text or a pair of texts: the post-processors of a tokenizer.json.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace colonnade::tokenizers {

/// Ids and the segment that each belongs to.
struct Encoding {
  std::vector<std::int32_t> ids, type_ids;
};

/// A template: texts and special tokens in order.
class PostProcessor {
 public:
  /// The first text, the second one, or special tokens.
  struct Part {
    enum class Kind { kFirst, kSecond, kSpecial } kind = Kind::kFirst;
    std::vector<std::int32_t> ids;  ///< special tokens only
    std::int32_t type_id = 0;
  };
  /// One text, a pair of texts.
  PostProcessor(std::vector<Part> single, std::vector<Part> pair)
      : single_(std::move(single)), pair_(std::move(pair)) {}
  /// The texts alone, of types 0 and 1.
  PostProcessor();

  [[nodiscard]] Encoding single(std::span<const std::int32_t> text, bool with_special) const;
  [[nodiscard]] Encoding pair(std::span<const std::int32_t> first, std::span<const std::int32_t> second,
                              bool with_special) const;
  /// Puts the special ids of a single text around its ids.
  void put_around(std::vector<std::int32_t>& ids) const;
  /// Special ids in front of and behind a single text.
  [[nodiscard]] std::vector<std::int32_t> specials_of_single() const;

 private:
  std::vector<Part> single_, pair_;
};

}  // namespace colonnade::tokenizers
