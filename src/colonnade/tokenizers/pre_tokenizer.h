// The pre-tokenizers of a tokenizer.json: they split a normalized text into words for the model.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "colonnade/tokenizers/normalizer.h"
#include "colonnade/tokenizers/split_patterns.h"

namespace colonnade::tokenizers {

/// The treatment of the matches of a pattern (SplitDelimiterBehavior of Hugging Face tokenizers).
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct LiteralPattern {
  std::string text;  ///< not empty
};
struct CharFlagPattern {
  std::uint16_t flags;  ///< matches characters with one of these CharFlags; 0 matches white space
};
struct WordPattern {};  ///< \w+|[^\w\s]+
using Pattern = std::variant<LiteralPattern, CharFlagPattern, WordPattern, SplitPattern, Regex>;

struct SplitPreTokenizer {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};
struct ByteLevelPreTokenizer {
  bool add_prefix_space = true, use_regex = true;
};
struct MetaspacePreTokenizer {
  enum class Prepend { kFirst, kNever, kAlways };
  char32_t replacement = 0x2581;
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};
using PreTokenizer = std::variant<SplitPreTokenizer, ByteLevelPreTokenizer, MetaspacePreTokenizer>;

/// Stores the nonempty spans of a text after the split.
void split(const SplitPreTokenizer& step, std::string_view text, std::vector<Span>& spans);

/// Receives a piece of a text; `first`: whether the piece starts where the original text does.
using PieceSink = std::function<void(std::string_view, bool first)>;

/// Maximum number of steps of a tokenizer; steps run nested.
constexpr std::size_t kMaxSteps = 64;

/// Applies the steps in order, each to every piece of the step before, and calls `use` for every resulting
/// piece in order. Memory does not grow with the number of pieces if a step splits at single characters. At
/// most kMaxSteps; throws DataError for a text that grows beyond GrowthLimit.
void pre_tokenize(std::span<const PreTokenizer> steps, std::string_view text, bool first,
                  const PieceSink& use);

}  // namespace colonnade::tokenizers
