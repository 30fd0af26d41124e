// Word boundaries of 64 ASCII bytes at once, by bit masks, for the split rules of GPT-2, Llama-3, o200k and
// their kin. Method: one compare per class of characters gives a word of bits (Langdale, Lemire, "Parsing
// gigabytes of JSON per second", 2019); shifts and carries of those words do what the expressions of
// cut_rules.cpp say.
#pragma once

#include <cstdint>

namespace colonnade::data {

/// The expressions differ in where words begin.
enum class WordFamily { kGpt2, kLlama3, kO200k };

/// `digits`: most digits of a word, of the last two families. `contractions`: 's, 't, 're, 've, 'm, 'll, 'd.
struct AsciiRule {
  WordFamily family = WordFamily::kGpt2;
  int digits = 3;
  bool contractions = true;
};

/// A word begins at `at`, `end` > `at`. The bits of those of the 64 bytes from `at` on where further words
/// begin, bit 0 left out: no bit is wrong and none between two bits is missing, whatever follows the window.
/// Bytes behind the first that is not ASCII have none. 0: nothing is known but that a word begins at `at`.
template <AsciiRule kRule>
[[nodiscard]] std::uint64_t ascii_word_begins(const char* at, const char* end);

extern template std::uint64_t ascii_word_begins<AsciiRule{WordFamily::kGpt2, 0, true}>(const char*,
                                                                                       const char*);
extern template std::uint64_t ascii_word_begins<AsciiRule{WordFamily::kLlama3, 3, true}>(const char*,
                                                                                         const char*);
extern template std::uint64_t ascii_word_begins<AsciiRule{WordFamily::kLlama3, 1, true}>(const char*,
                                                                                         const char*);
extern template std::uint64_t ascii_word_begins<AsciiRule{WordFamily::kLlama3, 1, false}>(const char*,
                                                                                          const char*);
extern template std::uint64_t ascii_word_begins<AsciiRule{WordFamily::kO200k, 3, true}>(const char*,
                                                                                        const char*);
extern template std::uint64_t ascii_word_begins<AsciiRule{WordFamily::kO200k, 1, false}>(const char*,
                                                                                         const char*);

}  // namespace colonnade::data
