// The split rules of known tokenizer families, by hand: each cuts a text as its regular expression does.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/ascii_words.h"
#include "colonnade/tokenizers/regex.h"
#include "colonnade/tokenizers/unicode.h"

namespace colonnade::tokenizers {

enum class SplitRule {
  kGpt2,
  kLlama3,      ///< also cl100k as Hugging Face converts it
  kQwen2,       ///< Llama-3's with single digits
  kCl100k,      ///< tiktoken's: white space at the end of a text is one piece
  kTiktokenV1,  ///< Megatron's v1: Qwen-2's without contractions
  kO200k,       ///< GPT-OSS, GPT-4o, Llama-4
  kTekken,      ///< Mistral, Megatron's v2: o200k's without contractions, with single digits
  kDeepSeek3,   ///< the last of DeepSeek-V3's three expressions
  kDigits3,     ///< \p{N}{1,3}, the first of them
  kKana,        ///< runs of Chinese and Japanese, the second
};

/// The rule that an expression of a file is; nothing: no known one.
std::optional<SplitRule> known_rule(std::string_view expression);
/// An expression of the rule.
std::string_view expression_of(SplitRule rule);

/// Appends the spans of valid UTF-8 text, as Regex::find gives them.
void split_by_rule(SplitRule rule, std::string_view text, std::vector<Span>& spans);

/// Cuts a text word by word. Only for rules that match every character (all but the last three).
class WordCutter {
 public:
  explicit WordCutter(SplitRule rule, Vectors vectors = widest_vectors());
  /// Writes the ends of the words from `at` to `end`, at most `ends.size()` of them, and returns how many.
  [[nodiscard]] std::size_t cut(const char* at, const char* end, std::span<const char*> ends) const {
    return cut_(ascii_, at, end, ends);
  }

 private:
  std::size_t (*cut_)(AsciiWords ascii, const char* at, const char* end, std::span<const char*> ends);
  AsciiWords ascii_;
};

}  // namespace colonnade::tokenizers
