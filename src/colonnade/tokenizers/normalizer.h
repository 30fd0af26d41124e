// What is done to a text before it is cut: the normalizers of a tokenizer.json.
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

/// A text and whether its first character stems from the first one of the original text.
struct Piece {
  std::string text;
  bool first = true;
};

struct UnicodeForm {
  NormalForm form;
};
struct LowerCase {};
struct StripSpace {
  bool left = true, right = true;
};
struct StripAccents {};
struct NmtCleaning {};
struct ByteChars {};  ///< every byte as the visible character that stands for it
struct Prepend {
  std::string text;
};
struct ReplaceText {
  std::string pattern, content;  ///< pattern: not empty
};
struct ReplaceRegex {
  Regex pattern;
  std::string content;
};
struct BertCleaning {
  bool clean = true, split_chinese = true, strip_accents = true, lower = true;
};
using Normalizer = std::variant<UnicodeForm, LowerCase, StripSpace, StripAccents, NmtCleaning, ByteChars,
                                Prepend, ReplaceText, ReplaceRegex, BertCleaning, Charsmap>;

/// Applies one after another to valid UTF-8, as Hugging Face tokenizers does. Throws DataError for a text
/// that grows to more than 64 times its bytes and 1 MiB.
void normalize_piece(std::span<const Normalizer> normalizers, Piece& piece);

[[nodiscard]] std::string replace_all(std::string_view text, std::string_view pattern,
                                      std::string_view content);

/// The visible character that stands for a byte in byte-level vocabularies, and the way back (-1: none does).
[[nodiscard]] char32_t char_of_byte(unsigned char byte);
[[nodiscard]] int byte_of_char(char32_t c);
[[nodiscard]] std::string bytes_as_chars(std::string_view bytes);

}  // namespace colonnade::tokenizers
