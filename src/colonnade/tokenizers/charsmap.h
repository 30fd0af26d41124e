// The precompiled normalization map of SentencePiece models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/growth_limit.h"

namespace colonnade::tokenizers {

/// A double-array trie (Darts-clone) of the replaced texts, and their replacements.
class Charsmap {
 public:
  /// `bytes`: the array's size in bytes (uint32), the array (uint32 units), zero-terminated texts. Throws
  /// DataError that starts with `where` if the sizes do not fit or a text is not UTF-8.
  Charsmap(std::string_view bytes, const std::string& where);

  /// The text with replacements as in Hugging Face tokenizers: a grapheme cluster of up to 5 bytes is
  /// replaced as a whole by the replacement of its shortest known prefix; other characters one by one. Throws
  /// DataError beyond the limit.
  [[nodiscard]] std::string apply(std::string_view text, const GrowthLimit& limit) const;

 private:
  /// The replacement of the shortest known prefix of `part`; nullptr if there is none.
  [[nodiscard]] const char* find(std::string_view part) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace colonnade::tokenizers
