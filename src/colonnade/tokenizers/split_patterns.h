// Hand-written split patterns of known tokenizers: each splits a text as its regular expression does.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/ascii_words.h"
#include "colonnade/tokenizers/regex.h"
#include "colonnade/tokenizers/unicode.h"

namespace colonnade::tokenizers {

enum class SplitPattern {
  kGpt2,
  kLlama3,      ///< also cl100k as Hugging Face converts it
  kQwen2,       ///< Llama-3's with single digits
  kCl100k,      ///< tiktoken's cl100k: trailing white space of a text is one piece
  kTiktokenV1,  ///< Megatron's v1: Qwen-2's without contractions
  kO200k,       ///< GPT-OSS, GPT-4o, Llama-4
  kTekken,      ///< Mistral, Megatron's v2: o200k's without contractions, with single digits
  kDeepSeek3,   ///< third of DeepSeek-V3's three expressions
  kDigits3,     ///< first of them: \p{N}{1,3}
  kCjk,         ///< second of them: runs of Chinese and Japanese
};

/// The pattern of a regular expression in a file; nullopt if it is not a known one.
std::optional<SplitPattern> find_split_pattern(std::string_view expression);
/// A regular expression of the pattern.
std::string_view regex_of(SplitPattern pattern);

/// Appends the spans of valid UTF-8 text, as Regex::find gives them.
void split_by_pattern(SplitPattern pattern, std::string_view text, std::vector<Span>& spans);

/// Splits a text word by word. Only for patterns that match every character (all but the last three).
class WordSplitter {
 public:
  explicit WordSplitter(SplitPattern pattern, SimdLevel level = best_simd_level());
  /// Writes the ends of the words in [at, end), at most `ends.size()` of them, and returns their number.
  [[nodiscard]] std::size_t split(const char* at, const char* end, std::span<const char*> ends) const {
    return split_(ascii_, at, end, ends);
  }

 private:
  std::size_t (*split_)(AsciiSplitter ascii, const char* at, const char* end, std::span<const char*> ends);
  AsciiSplitter ascii_;
};

}  // namespace colonnade::tokenizers
