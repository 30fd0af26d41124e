// How a normalized text is cut into words before a model sees it: the pre-tokenizers of a tokenizer.json.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "colonnade/tokenizers/cut_rules.h"
#include "colonnade/tokenizers/normalizer.h"

namespace colonnade::tokenizers {

/// What becomes of the delimiters that a pattern matches.
enum class Delimiter { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct LiteralPattern {
  std::string text;  ///< not empty
};
struct FlagPattern {
  std::uint16_t flags;  ///< characters with one of these flags; 0: white space
};
struct WordPattern {};  ///< \w+|[^\w\s]+
using Pattern = std::variant<LiteralPattern, FlagPattern, WordPattern, SplitRule, Regex>;

struct SplitStep {
  Pattern pattern;
  Delimiter behavior = Delimiter::kIsolated;
  bool invert = false;
};
struct ByteLevelStep {
  bool add_prefix_space = true, use_regex = true;
};
struct MetaspaceStep {
  enum class Prepend { kFirst, kNever, kAlways };
  char32_t replacement = 0x2581;
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};
using PreTokenizer = std::variant<SplitStep, ByteLevelStep, MetaspaceStep>;

/// The spans that are left of a text, delimiters handled; empty ones are left out.
void split(const SplitStep& step, std::string_view text, std::vector<Span>& spans);

/// Gets a piece of a text, and whether it begins where the original text does.
using UsePiece = std::function<void(std::string_view, bool first)>;

/// Steps that a tokenizer may have; they are run within each other.
constexpr std::size_t kMostSteps = 64;

/// Applies one after another, each to every piece of the one before, and calls `use` for every piece that is
/// left, in order. Memory does not grow with the number of pieces where a step cuts at single characters.
/// At most kMostSteps; throws DataError where they make a text grow too much.
void pre_tokenize(std::span<const PreTokenizer> steps, std::string_view text, bool first,
                  const UsePiece& use);

}  // namespace colonnade::tokenizers
