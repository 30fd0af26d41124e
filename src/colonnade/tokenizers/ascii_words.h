// Word boundaries of 64 ASCII bytes at once by bit masks, for the split patterns of GPT-2, Llama-3, o200k and
// their variants. Method: one compare per character class gives a 64-bit mask (Langdale, Lemire, "Parsing
// gigabytes of JSON per second", 2019); shifts and carries of the masks implement the regular expressions of
// split_patterns.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace colonnade::tokenizers {

/// The pattern that a variant derives from; it decides where words begin.
enum class BasePattern { kGpt2, kLlama3, kO200k };

/// `max_digits`: longest run of digits in one word, except for GPT-2's pattern. `contractions`: whether 's,
/// 't, 're, 've, 'm, 'll and 'd are words.
struct AsciiPattern {
  BasePattern base = BasePattern::kGpt2;
  int max_digits = 3;
  bool contractions = true;
};

/// Bytes per window.
constexpr std::size_t kAsciiWindow = 64;

/// Instruction sets that the loops are compiled for; all give the same words.
enum class SimdLevel { kBaseline, kAvx2, kAvx512 };
/// The widest instruction set of this CPU.
SimdLevel best_simd_level();

/// Writes the ends of the words from `at` (the start of a word, < `end`) to `ends` and returns their number.
/// Stops when fewer than 64 slots are left, or when a window of 64 bytes does not determine the next word's
/// end: a word of 63 bytes or more, one next to non-ASCII bytes, or the last word of the text.
using AsciiSplitter = std::size_t (*)(const char* at, const char* end, std::span<const char*> ends);

/// The splitter of a pattern; `level`: at most best_simd_level().
template <AsciiPattern kPattern>
[[nodiscard]] AsciiSplitter ascii_splitter(SimdLevel level);

extern template AsciiSplitter ascii_splitter<AsciiPattern{BasePattern::kGpt2, 0, true}>(SimdLevel);
extern template AsciiSplitter ascii_splitter<AsciiPattern{BasePattern::kLlama3, 3, true}>(SimdLevel);
extern template AsciiSplitter ascii_splitter<AsciiPattern{BasePattern::kLlama3, 1, true}>(SimdLevel);
extern template AsciiSplitter ascii_splitter<AsciiPattern{BasePattern::kLlama3, 1, false}>(SimdLevel);
extern template AsciiSplitter ascii_splitter<AsciiPattern{BasePattern::kO200k, 3, true}>(SimdLevel);
extern template AsciiSplitter ascii_splitter<AsciiPattern{BasePattern::kO200k, 1, false}>(SimdLevel);

}  // namespace colonnade::tokenizers
