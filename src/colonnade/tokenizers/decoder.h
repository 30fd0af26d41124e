// Tokens back to text: the decoders of a tokenizer.json.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "colonnade/tokenizers/regex.h"

namespace colonnade::tokenizers {

/// The character that stands for a space in pieces of SentencePiece.
constexpr std::string_view kMetaspace = "\xE2\x96\x81";

struct ByteLevelDecoder {};  ///< visible characters back to bytes, all tokens together
struct ByteFallbackDecoder {};
struct FuseDecoder {};
struct BpeDecoder {
  std::string suffix = "</w>";
};
struct WordPieceDecoder {
  std::string prefix = "##";
  bool cleanup = true;
};
struct MetaspaceDecoder {
  std::string replacement{kMetaspace};
  bool drop_first = true;
};
struct StripDecoder {
  std::string content;  ///< one character
  std::int64_t start = 0, stop = 0;
};
struct ReplaceTextDecoder {
  std::string pattern, content;
};
struct ReplaceRegexDecoder {
  Regex pattern;
  std::string content;
};
using Decoder = std::variant<ByteLevelDecoder, ByteFallbackDecoder, FuseDecoder, BpeDecoder, WordPieceDecoder,
                             MetaspaceDecoder, StripDecoder, ReplaceTextDecoder, ReplaceRegexDecoder>;

/// The value of <0x00> to <0xFF>; -1: another token.
[[nodiscard]] int byte_of_token(std::string_view token);

/// Without the spaces that words have around punctuation and contractions in English, as Transformers'
/// clean_up_tokenization_spaces.
[[nodiscard]] std::string without_word_spaces(std::string text);

/// Applies one after another and joins what comes out; without any, tokens are joined by spaces. Throws
/// DataError for a text that grows too much.
[[nodiscard]] std::string decode(const std::vector<Decoder>& decoders, std::vector<std::string> tokens);

}  // namespace colonnade::tokenizers
