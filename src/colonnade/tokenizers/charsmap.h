// The normalization map that SentencePiece models carry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/growth.h"

namespace colonnade::tokenizers {

/// A double array of what is replaced (Darts-clone) and the texts that replace it.
class Charsmap {
 public:
  /// `bytes`: the array's size in bytes (uint32), the array (uint32 each), texts that end in 0. Throws
  /// DataError, with `where` in front, when an offset points outside.
  Charsmap(std::string_view bytes, const std::string& where);

  /// As Hugging Face tokenizers applies it: a grapheme cluster of up to 5 bytes is replaced whole by what its
  /// shortest known beginning stands for; other characters alone. Throws DataError beyond the limit.
  [[nodiscard]] std::string apply(std::string_view text, const GrowthLimit& limit) const;

 private:
  /// The replacement of the shortest known beginning of `part`; nullptr: none is known.
  [[nodiscard]] const char* find(std::string_view part) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace colonnade::tokenizers
