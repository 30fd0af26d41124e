// See split_patterns.h. Alternatives are tried in the order of the expressions, and backtracking is replaced
// by closed forms.
#include "colonnade/tokenizers/split_patterns.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/ascii_words.h"

namespace colonnade::tokenizers {
namespace {

/// Character classes of the patterns, as bits.
enum : unsigned {
  kUpper = 1,     ///< Lu, Lt
  kLower = 2,     ///< Ll
  kCaseless = 4,  ///< Lm, Lo: letters that count as both upper and lower
  kMarks = 8,     ///< M
  kNumber = 16,   ///< N
  kSpace = 32,    ///< White_Space
  kNewline = 64,  ///< \r and \n
  kSymbol = 128,  ///< P, S
  kOther = 256,   ///< all others
  kLetters = kUpper | kLower | kCaseless,
};

unsigned bits_of(Category category) {
  constexpr std::array<unsigned, 12> kBits = {kOther, kUpper,  kLower,  kUpper,  kCaseless, kCaseless,
                                              kMarks, kNumber, kNumber, kSymbol, kSymbol,   kSpace};
  return kBits[static_cast<std::size_t>(category)];
}

constexpr unsigned ascii_class(unsigned c) {
  if (c >= 'A' && c <= 'Z') return kUpper;
  if (c >= 'a' && c <= 'z') return kLower;
  if (c >= '0' && c <= '9') return kNumber;
  if (c == '\r' || c == '\n') return kSpace | kNewline;
  if (c == ' ' || (c >= '\t' && c <= '\f')) return kSpace;
  return c > ' ' && c < 127 ? kSymbol : kOther;
}
constexpr std::array<std::uint16_t, 128> ascii_bits() {
  std::array<std::uint16_t, 128> bits{};
  for (unsigned c = 0; c < 128; ++c) bits[c] = static_cast<std::uint16_t>(ascii_class(c));
  return bits;
}
constexpr std::array<std::uint16_t, 128> kAscii = ascii_bits();

struct Char {
  unsigned bits;
  int size;
};

[[gnu::always_inline]] inline Char peek(const char* at) {
  const auto byte = static_cast<unsigned char>(*at);
  if (byte < 128) [[likely]]
    return {kAscii[byte], 1};
  const Decoded c = decode_utf8(at);
  return {bits_of(CharTable::get().category(c.value)), c.size};
}

/// The end of the run of characters with one of `bits`, or with none of them (kInverse).
template <unsigned bits, bool kInverse = false>
inline const char* run(const char* at, const char* end) {
  while (at < end) {
    const Char c = peek(at);
    if (((c.bits & bits) != 0) == kInverse) break;
    at += c.size;
  }
  return at;
}

/// The end of a run of letters, eight ASCII ones at a time.
[[gnu::always_inline]] inline const char* run_of_letters(const char* at, const char* end) {
  while (end - at >= 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, at, 8);
    constexpr std::uint64_t kOnes = 0x0101010101010101ULL;
    const std::uint64_t low = (eight | 0x20 * kOnes) & 0x7F * kOnes;
    const std::uint64_t letters =
        (low + (0x80 - 'a') * kOnes) & ~(low + (0x7F - 'z') * kOnes) & ~eight & 0x80 * kOnes;
    const int count = std::countr_one((letters | 0x7F * kOnes)) / 8;
    at += count;
    if (count < 8 && *at >= 0) return at;
    if (count < 8) break;
  }
  return run<kLetters>(at, end);
}

/// The end of 's, 't, 're, 've, 'm, 'll or 'd at the apostrophe `at`; nullptr if none of them follows.
/// Ignoring case, U+017F is an s.
template <bool kAnyCase>
const char* contraction(const char* at, const char* end) {
  if (end - at < 2 || *at != '\'') return nullptr;
  const auto letter = [&](std::ptrdiff_t i) {
    const char c = i < end - at ? at[i] : '\0';
    return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
  if (first == 'l' && second == 'l') return at + 3;
  if (kAnyCase && end - at >= 3 && at[1] == '\xC5' && at[2] == '\xBF') return at + 3;
  return nullptr;
}

/// \s+(?!\S)|\s+ for white space that ends at `stop`: all of it at the end of the text, else all but the last
/// character.
inline const char* whitespace(const char* at, const char* stop, const char* end) {
  if (stop == end) return stop;
  const char* last = stop - 1;
  while ((*last & 0xC0) == 0x80) --last;
  return last > at ? last : stop;
}

/// \s*[\r\n]+|\s+(?!\S)|\s+
inline const char* whitespace_or_newlines(const char* at, const char* end) {
  const char* stop = run<kSpace>(at, end);
  for (const char* last = stop; last > at; --last)
    if (last[-1] == '\n' || last[-1] == '\r') return last;
  return whitespace(at, stop, end);
}

inline const char* numbers(const char* at, const char* end, int most) {
  for (int i = 0; i < most && at < end; ++i) {
    const Char c = peek(at);
    if ((c.bits & kNumber) == 0) break;
    at += c.size;
  }
  return at;
}

const char* next_gpt2(const char* at, const char* end) {
  if (*at == '\'')
    if (const char* stop = contraction<false>(at, end)) return stop;
  const char* word = *at == ' ' && at + 1 < end ? at + 1 : at;
  const Char c = peek(word);
  if ((c.bits & kLetters) != 0) return run_of_letters(word, end);
  if ((c.bits & kNumber) != 0) return run<kNumber>(word, end);
  if ((c.bits & kSpace) == 0) return run<kLetters | kNumber | kSpace, true>(word, end);
  return whitespace(at, run<kSpace>(at, end), end);
}

/// Llama-3's pattern and its variants.
template <int kDigits, bool kContractions, bool kWholeTail>
const char* next_llama3(const char* at, const char* end) {
  if (kContractions && *at == '\'')
    if (const char* stop = contraction<true>(at, end)) return stop;
  const Char first = peek(at);
  if ((first.bits & kLetters) != 0) return run_of_letters(at, end);
  if ((first.bits & kNumber) != 0) return numbers(at, end, kDigits);
  const char* second = at + first.size;
  const Char after = second < end ? peek(second) : Char{0, 0};
  if ((first.bits & kNewline) == 0 && (after.bits & kLetters) != 0) return run_of_letters(second, end);
  const bool spaced = *at == ' ' && after.size > 0 && (after.bits & (kSpace | kLetters | kNumber)) == 0;
  if (spaced || (first.bits & kSpace) == 0)
    return run<kNewline>(run<kLetters | kNumber | kSpace, true>(spaced ? second : at, end), end);
  if (kWholeTail)
    if (const char* stop = run<kSpace>(at, end); stop == end) return stop;
  return whitespace_or_newlines(at, end);
}

constexpr unsigned kUpperSet = kUpper | kCaseless | kMarks, kLowerSet = kLower | kCaseless | kMarks;

/// The end of [upper set]*[lower set]+ at `at`; nullptr if it does not match.
const char* upper_then_lower(const char* at, const char* end) {
  const char* last_both = nullptr;  // end of the run's last character that is in both sets
  while (at < end) {
    const Char c = peek(at);
    if ((c.bits & kUpperSet) == 0) break;
    at += c.size;
    if ((c.bits & kLowerSet) != 0) last_both = at;
  }
  const char* stop = run<kLowerSet>(at, end);
  return stop > at ? stop : last_both;
}

/// The end of [upper set]+[lower set]* at `at`; nullptr if it does not match.
const char* upper_first(const char* at, const char* end) {
  const char* stop = run<kUpperSet>(at, end);
  return stop > at ? run<kLowerSet>(stop, end) : nullptr;
}

/// The end of a word and its contraction; it starts at `second`, after a one-character prefix, unless null.
template <bool kContractions>
const char* cased_word(const char* at, const char* second, const char* end) {
  const char* stop = second != nullptr ? upper_then_lower(second, end) : nullptr;
  if (stop == nullptr) stop = upper_then_lower(at, end);
  if (stop == nullptr && second != nullptr) stop = upper_first(second, end);
  if (stop == nullptr) stop = upper_first(at, end);
  const char* longer = kContractions && stop < end ? contraction<true>(stop, end) : nullptr;
  return longer != nullptr ? longer : stop;
}

/// o200k's pattern and its variants.
template <int kDigits, bool kContractions>
const char* next_o200k(const char* at, const char* end) {
  const Char first = peek(at);
  const bool prefixed = (first.bits & (kNewline | kLetters | kNumber)) == 0;
  const char* second = at + first.size;
  const Char after = second < end ? peek(second) : Char{0, 0};
  const bool word_follows = prefixed && (after.bits & (kLetters | kMarks)) != 0;
  if (word_follows || (first.bits & (kLetters | kMarks)) != 0)
    return cased_word<kContractions>(at, word_follows ? second : nullptr, end);
  if ((first.bits & kNumber) != 0) return numbers(at, end, kDigits);
  const bool spaced = *at == ' ' && after.size > 0 && (after.bits & (kSpace | kLetters | kNumber)) == 0;
  if (!spaced && (first.bits & kSpace) != 0) return whitespace_or_newlines(at, end);
  const char* stop = run<kLetters | kNumber | kSpace, true>(spaced ? second : at, end);
  while (stop < end && (*stop == '\r' || *stop == '\n' || *stop == '/')) ++stop;
  return stop;
}

/// The third expression of DeepSeek-V3; nullptr if no match begins here.
const char* next_deepseek3(const char* at, const char* end) {
  const auto is_ascii_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const Char first = peek(at);
  const char* second = at + first.size;
  if (first.size == 1 && (first.bits & kSymbol) != 0 && second < end && is_ascii_letter(*second)) {
    while (second < end && is_ascii_letter(*second)) ++second;
    return second;
  }
  const Char after = second < end ? peek(second) : Char{0, 0};
  if ((first.bits & (kNewline | kLetters | kSymbol)) == 0 && (after.bits & (kLetters | kMarks)) != 0)
    return run<kLetters | kMarks>(second, end);
  if ((first.bits & (kLetters | kMarks)) != 0) return run<kLetters | kMarks>(at, end);
  const bool spaced = *at == ' ' && (after.bits & kSymbol) != 0;
  if (spaced || (first.bits & kSymbol) != 0)
    return run<kNewline>(run<kSymbol>(spaced ? second : at, end), end);
  return (first.bits & kSpace) != 0 ? whitespace_or_newlines(at, end) : nullptr;
}

bool is_cjk(char32_t c) { return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF); }

const char* next_cjk(const char* at, const char* end) {
  const char* stop = at;
  while (stop < end) {
    const Decoded c = decode_utf8(stop);
    if (!is_cjk(c.value)) break;
    stop += c.size;
  }
  return stop > at ? stop : nullptr;
}

const char* next_digits3(const char* at, const char* end) {
  const char* stop = numbers(at, end, 3);
  return stop > at ? stop : nullptr;
}

/// The words from `at` on by one pattern: ASCII words by windows, others one by one.
template <const char* (*next)(const char*, const char*)>
std::size_t split_words(AsciiSplitter ascii, const char* at, const char* end, std::span<const char*> ends) {
  std::size_t count = 0;
  while (at < end && count < ends.size()) {
    if (const std::size_t more = ascii(at, end, ends.subspan(count)); more > 0) {
      at = ends[(count += more) - 1];
      if (ends.size() - count < kAsciiWindow) break;  // do not fill the last slots word by word
    } else {
      ends[count++] = at = next(at, end);
    }
  }
  return count;
}

struct PatternEntry {
  SplitPattern pattern;
  const char* (*next)(const char*, const char*);
  std::string_view expression;
};

constexpr PatternEntry kEntries[] = {
    {SplitPattern::kGpt2, next_gpt2,
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kGpt2, next_gpt2,
     R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kGpt2, next_gpt2,
     R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"},
    {SplitPattern::kLlama3, next_llama3<3, true, false>,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kLlama3, next_llama3<3, true, false>,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {SplitPattern::kQwen2, next_llama3<1, true, false>,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kCl100k, next_llama3<3, true, true>,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"},
    {SplitPattern::kTiktokenV1, next_llama3<1, false, false>,
     R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {SplitPattern::kO200k, next_o200k<3, true>,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kTekken, next_o200k<1, false>,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kDeepSeek3, next_deepseek3,
     R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kDigits3, next_digits3, R"(\p{N}{1,3})"},
    {SplitPattern::kCjk, next_cjk, "[一-龥぀-ゟ゠-ヿ]+"},
};

const PatternEntry& entry_of(SplitPattern pattern) {
  return *std::find_if(std::begin(kEntries), std::end(kEntries),
                       [pattern](const PatternEntry& e) { return e.pattern == pattern; });
}

}  // namespace

std::optional<SplitPattern> find_split_pattern(std::string_view expression) {
  std::string plain;  // with \r and \n escaped, as files may hold them either way
  for (const char c : expression) plain += c == '\r' ? "\\r" : c == '\n' ? "\\n" : std::string(1, c);
  for (const PatternEntry& e : kEntries)
    if (plain == e.expression) return e.pattern;
  return std::nullopt;
}

std::string_view regex_of(SplitPattern pattern) { return entry_of(pattern).expression; }

void split_by_pattern(SplitPattern pattern, std::string_view text, std::vector<Span>& spans) {
  const auto next = entry_of(pattern).next;
  const char* end = text.data() + text.size();
  const auto offset = [&](const char* at) { return static_cast<std::size_t>(at - text.data()); };
  const char* unmatched = text.data();
  for (const char* at = unmatched; at < end;) {
    const char* stop = next(at, end);
    if (stop == nullptr) {
      at += peek(at).size;
      continue;
    }
    if (unmatched < at) spans.push_back({offset(unmatched), offset(at), false});
    spans.push_back({offset(at), offset(stop), true});
    unmatched = at = stop;
  }
  if (unmatched < end) spans.push_back({offset(unmatched), text.size(), false});
}

WordSplitter::WordSplitter(SplitPattern pattern, SimdLevel level) {
  switch (pattern) {
    case SplitPattern::kGpt2:
      split_ = split_words<next_gpt2>;
      ascii_ = ascii_splitter<AsciiPattern{BasePattern::kGpt2, 0, true}>(level);
      break;
    case SplitPattern::kLlama3:
      split_ = split_words<next_llama3<3, true, false>>;
      ascii_ = ascii_splitter<AsciiPattern{BasePattern::kLlama3, 3, true}>(level);
      break;
    case SplitPattern::kQwen2:
      split_ = split_words<next_llama3<1, true, false>>;
      ascii_ = ascii_splitter<AsciiPattern{BasePattern::kLlama3, 1, true}>(level);
      break;
    case SplitPattern::kCl100k:
      split_ = split_words<next_llama3<3, true, true>>;
      ascii_ = ascii_splitter<AsciiPattern{BasePattern::kLlama3, 3, true}>(level);
      break;
    case SplitPattern::kTiktokenV1:
      split_ = split_words<next_llama3<1, false, false>>;
      ascii_ = ascii_splitter<AsciiPattern{BasePattern::kLlama3, 1, false}>(level);
      break;
    case SplitPattern::kO200k:
      split_ = split_words<next_o200k<3, true>>;
      ascii_ = ascii_splitter<AsciiPattern{BasePattern::kO200k, 3, true}>(level);
      break;
    case SplitPattern::kTekken:
      split_ = split_words<next_o200k<1, false>>;
      ascii_ = ascii_splitter<AsciiPattern{BasePattern::kO200k, 1, false}>(level);
      break;
    default:
      COL_CHECK(false, "word splitter: pattern must match every character; got {}",
                static_cast<int>(pattern));
  }
}

}  // namespace colonnade::tokenizers
