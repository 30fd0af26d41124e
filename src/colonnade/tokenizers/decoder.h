// The decoders of a tokenizer.json: tokens back to text.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "colonnade/tokenizers/regex.h"

namespace colonnade::tokenizers {

/// The character that represents a space in SentencePiece pieces.
constexpr std::string_view kMetaspace = "\xE2\x96\x81";

struct ByteLevelDecoder {};  ///< maps visible characters back to bytes, over all tokens
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
  bool drop_first = true;  ///< whether the first token's marks become nothing
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

/// The byte value of the tokens <0x00> to <0xFF>; -1 for any other token.
[[nodiscard]] int byte_of_token(std::string_view token);

/// The text without spaces before punctuation and contractions of English, as Transformers'
/// clean_up_tokenization_spaces gives it.
[[nodiscard]] std::string clean_up_tokenization_spaces(std::string text);

/// Applies the decoders in order and joins the tokens; without decoders, joins them by spaces. Throws
/// DataError for a text that grows beyond GrowthLimit.
[[nodiscard]] std::string decode(const std::vector<Decoder>& decoders, std::vector<std::string> tokens);

}  // namespace colonnade::tokenizers
