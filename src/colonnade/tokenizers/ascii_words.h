// Word boundaries of 64 ASCII bytes at once, by bit masks, for the split rules of GPT-2, Llama-3, o200k and
// their kin. Method: one compare per class of characters gives a word of bits (Langdale, Lemire, "Parsing
// gigabytes of JSON per second", 2019); shifts and carries of those words do what the expressions of
// cut_rules.cpp say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace colonnade::tokenizers {

/// The expressions differ in where words begin.
enum class WordFamily { kGpt2, kLlama3, kO200k };

/// `digits`: most digits of a word, of the last two families. `contractions`: 's, 't, 're, 've, 'm, 'll, 'd.
struct AsciiRule {
  WordFamily family = WordFamily::kGpt2;
  int digits = 3;
  bool contractions = true;
};

/// Bytes that are looked at together.
constexpr std::size_t kAsciiWindow = 64;

/// What the loops are compiled for; all give the same words.
enum class Vectors { kPlain, kAvx2, kAvx512 };
/// The widest that this processor has.
Vectors widest_vectors();

/// Writes the ends of the words from `at` on, where one begins, `end` > `at`, as long as 64 more fit into
/// `ends` and each is certain from the 64 bytes behind its begin; returns how many. Fewer than fit: what
/// comes next is a word of 63 bytes or more, one beside bytes that are not ASCII, or the last of the text.
using AsciiWords = std::size_t (*)(const char* at, const char* end, std::span<const char*> ends);

/// `vectors`: at most widest_vectors().
template <AsciiRule kRule>
[[nodiscard]] AsciiWords ascii_words(Vectors vectors);

extern template AsciiWords ascii_words<AsciiRule{WordFamily::kGpt2, 0, true}>(Vectors);
extern template AsciiWords ascii_words<AsciiRule{WordFamily::kLlama3, 3, true}>(Vectors);
extern template AsciiWords ascii_words<AsciiRule{WordFamily::kLlama3, 1, true}>(Vectors);
extern template AsciiWords ascii_words<AsciiRule{WordFamily::kLlama3, 1, false}>(Vectors);
extern template AsciiWords ascii_words<AsciiRule{WordFamily::kO200k, 3, true}>(Vectors);
extern template AsciiWords ascii_words<AsciiRule{WordFamily::kO200k, 1, false}>(Vectors);

}  // namespace colonnade::tokenizers
