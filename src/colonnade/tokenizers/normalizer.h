// The normalizers of a tokenizer.json.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "colonnade/tokenizers/charsmap.h"
#include "colonnade/tokenizers/regex.h"
#include "colonnade/tokenizers/unicode.h"

namespace colonnade::tokenizers {

/// A text, and whether its first character derives from the first character of the original text.
struct NormalizedString {
  std::string text;
  bool first = true;
};

struct UnicodeNormalizer {
  NormalForm form;
};
struct Lowercase {};
struct Strip {
  bool left = true, right = true;
};
struct StripAccents {};
struct Nmt {};
struct ByteLevelNormalizer {};  ///< maps every byte to the visible character that represents it
struct Prepend {
  std::string text;
};
struct ReplaceText {
  std::string pattern, content;  ///< `pattern` is not empty
};
struct ReplaceRegex {
  Regex pattern;
  std::string content;
};
struct BertNormalizer {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
};
using Normalizer = std::variant<UnicodeNormalizer, Lowercase, Strip, StripAccents, Nmt, ByteLevelNormalizer,
                                Prepend, ReplaceText, ReplaceRegex, BertNormalizer, Charsmap>;

/// Applies the normalizers in order to valid UTF-8, as Hugging Face tokenizers does. Throws DataError for a
/// text that grows beyond GrowthLimit.
void apply_normalizers(std::span<const Normalizer> normalizers, NormalizedString& string);

[[nodiscard]] std::string replace_all(std::string_view text, std::string_view pattern,
                                      std::string_view content);

/// The visible character that represents a byte in byte-level vocabularies, and its inverse (-1 if there is
/// none).
[[nodiscard]] char32_t char_of_byte(unsigned char byte);
[[nodiscard]] int byte_of_char(char32_t c);
[[nodiscard]] std::string bytes_as_chars(std::string_view bytes);

}  // namespace colonnade::tokenizers
