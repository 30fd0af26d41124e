// See cut_rules.h. Alternatives are tried in the order of the expressions; what they would backtrack over is
// worked out.
#include "colonnade/tokenizers/cut_rules.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/ascii_words.h"

namespace colonnade::tokenizers {
namespace {

/// What the rules ask of a character, as bits.
enum : unsigned {
  kUp = 1,      ///< Lu, Lt
  kLow = 2,     ///< Ll
  kBoth = 4,    ///< Lm, Lo: letters that are upper and lower
  kMarks = 8,   ///< M
  kNum = 16,    ///< N
  kGap = 32,    ///< White_Space
  kLine = 64,   ///< \r and \n
  kSign = 128,  ///< P, S
  kAny = 256,   ///< the rest
  kLetters = kUp | kLow | kBoth,
};

unsigned bits_of(Category category) {
  constexpr std::array<unsigned, 12> kBits = {kAny,   kUp,  kLow, kUp,   kBoth, kBoth,
                                              kMarks, kNum, kNum, kSign, kSign, kGap};
  return kBits[static_cast<std::size_t>(category)];
}

constexpr unsigned ascii_kind(unsigned c) {
  if (c >= 'A' && c <= 'Z') return kUp;
  if (c >= 'a' && c <= 'z') return kLow;
  if (c >= '0' && c <= '9') return kNum;
  if (c == '\r' || c == '\n') return kGap | kLine;
  if (c == ' ' || (c >= '\t' && c <= '\f')) return kGap;
  return c > ' ' && c < 127 ? kSign : kAny;
}
constexpr std::array<std::uint16_t, 128> ascii_bits() {
  std::array<std::uint16_t, 128> bits{};
  for (unsigned c = 0; c < 128; ++c) bits[c] = static_cast<std::uint16_t>(ascii_kind(c));
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

/// The end of the run of characters with one of `bits` (with none of them: kInverse).
template <unsigned bits, bool kInverse = false>
inline const char* run(const char* at, const char* end) {
  while (at < end) {
    const Char c = peek(at);
    if (((c.bits & bits) != 0) == kInverse) break;
    at += c.size;
  }
  return at;
}

/// The same for letters, eight ASCII ones at a time.
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

/// The end of 's, 't, 're, 've, 'm, 'll, 'd at the apostrophe `at`; nullptr: another thing follows. In any
/// case of letters U+017F is an s.
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

/// \s+(?!\S)|\s+ at white space that ends at `stop`: all of it at the end of the text, else all but the last
/// character.
inline const char* gap(const char* at, const char* stop, const char* end) {
  if (stop == end) return stop;
  const char* last = stop - 1;
  while ((*last & 0xC0) == 0x80) --last;
  return last > at ? last : stop;
}

/// \s*[\r\n]+|\s+(?!\S)|\s+
inline const char* gap_or_lines(const char* at, const char* end) {
  const char* stop = run<kGap>(at, end);
  for (const char* last = stop; last > at; --last)
    if (last[-1] == '\n' || last[-1] == '\r') return last;
  return gap(at, stop, end);
}

inline const char* numbers(const char* at, const char* end, int most) {
  for (int i = 0; i < most && at < end; ++i) {
    const Char c = peek(at);
    if ((c.bits & kNum) == 0) break;
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
  if ((c.bits & kNum) != 0) return run<kNum>(word, end);
  if ((c.bits & kGap) == 0) return run<kLetters | kNum | kGap, true>(word, end);
  return gap(at, run<kGap>(at, end), end);
}

/// Llama-3's and its kin.
template <int kDigits, bool kContractions, bool kWholeEnd>
const char* next_llama3(const char* at, const char* end) {
  if (kContractions && *at == '\'')
    if (const char* stop = contraction<true>(at, end)) return stop;
  const Char first = peek(at);
  if ((first.bits & kLetters) != 0) return run_of_letters(at, end);
  if ((first.bits & kNum) != 0) return numbers(at, end, kDigits);
  const char* second = at + first.size;
  const Char after = second < end ? peek(second) : Char{0, 0};
  if ((first.bits & kLine) == 0 && (after.bits & kLetters) != 0) return run_of_letters(second, end);
  const bool spaced = *at == ' ' && after.size > 0 && (after.bits & (kGap | kLetters | kNum)) == 0;
  if (spaced || (first.bits & kGap) == 0)
    return run<kLine>(run<kLetters | kNum | kGap, true>(spaced ? second : at, end), end);
  if (kWholeEnd)
    if (const char* stop = run<kGap>(at, end); stop == end) return stop;
  return gap_or_lines(at, end);
}

constexpr unsigned kUpperSet = kUp | kBoth | kMarks, kLowerSet = kLow | kBoth | kMarks;

/// [upper set]*[lower set]+ at `at`; nullptr: no match.
const char* upper_then_lower(const char* at, const char* end) {
  const char* last_both = nullptr;  // the end of the last character of the run that is in both sets
  while (at < end) {
    const Char c = peek(at);
    if ((c.bits & kUpperSet) == 0) break;
    at += c.size;
    if ((c.bits & kLowerSet) != 0) last_both = at;
  }
  const char* stop = run<kLowerSet>(at, end);
  return stop > at ? stop : last_both;
}

/// [upper set]+[lower set]* at `at`; nullptr: no match.
const char* upper_first(const char* at, const char* end) {
  const char* stop = run<kUpperSet>(at, end);
  return stop > at ? run<kLowerSet>(stop, end) : nullptr;
}

/// A word with its contraction, behind a character of any other kind when `second` is not null.
template <bool kContractions>
const char* cased_word(const char* at, const char* second, const char* end) {
  const char* stop = second != nullptr ? upper_then_lower(second, end) : nullptr;
  if (stop == nullptr) stop = upper_then_lower(at, end);
  if (stop == nullptr && second != nullptr) stop = upper_first(second, end);
  if (stop == nullptr) stop = upper_first(at, end);
  const char* longer = kContractions && stop < end ? contraction<true>(stop, end) : nullptr;
  return longer != nullptr ? longer : stop;
}

/// o200k's and its kin.
template <int kDigits, bool kContractions>
const char* next_o200k(const char* at, const char* end) {
  const Char first = peek(at);
  const bool prefixed = (first.bits & (kLine | kLetters | kNum)) == 0;
  const char* second = at + first.size;
  const Char after = second < end ? peek(second) : Char{0, 0};
  const bool word_follows = prefixed && (after.bits & (kLetters | kMarks)) != 0;
  if (word_follows || (first.bits & (kLetters | kMarks)) != 0)
    return cased_word<kContractions>(at, word_follows ? second : nullptr, end);
  if ((first.bits & kNum) != 0) return numbers(at, end, kDigits);
  const bool spaced = *at == ' ' && after.size > 0 && (after.bits & (kGap | kLetters | kNum)) == 0;
  if (!spaced && (first.bits & kGap) != 0) return gap_or_lines(at, end);
  const char* stop = run<kLetters | kNum | kGap, true>(spaced ? second : at, end);
  while (stop < end && (*stop == '\r' || *stop == '\n' || *stop == '/')) ++stop;
  return stop;
}

/// The last expression of DeepSeek-V3; nullptr: no match begins here.
const char* next_deepseek3(const char* at, const char* end) {
  const auto is_ascii_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const Char first = peek(at);
  const char* second = at + first.size;
  if (first.size == 1 && (first.bits & kSign) != 0 && second < end && is_ascii_letter(*second)) {
    while (second < end && is_ascii_letter(*second)) ++second;
    return second;
  }
  const Char after = second < end ? peek(second) : Char{0, 0};
  if ((first.bits & (kLine | kLetters | kSign)) == 0 && (after.bits & (kLetters | kMarks)) != 0)
    return run<kLetters | kMarks>(second, end);
  if ((first.bits & (kLetters | kMarks)) != 0) return run<kLetters | kMarks>(at, end);
  const bool spaced = *at == ' ' && (after.bits & kSign) != 0;
  if (spaced || (first.bits & kSign) != 0) return run<kLine>(run<kSign>(spaced ? second : at, end), end);
  return (first.bits & kGap) != 0 ? gap_or_lines(at, end) : nullptr;
}

bool is_kana(char32_t c) { return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF); }

const char* next_kana(const char* at, const char* end) {
  const char* stop = at;
  while (stop < end) {
    const Decoded c = decode_utf8(stop);
    if (!is_kana(c.value)) break;
    stop += c.size;
  }
  return stop > at ? stop : nullptr;
}

const char* next_digits3(const char* at, const char* end) {
  const char* stop = numbers(at, end, 3);
  return stop > at ? stop : nullptr;
}

/// The words from `at` on by one rule: those that are ASCII by windows, others one by one.
template <const char* (*next)(const char*, const char*)>
std::size_t cut_words(AsciiWords ascii, const char* at, const char* end, std::span<const char*> ends) {
  std::size_t count = 0;
  while (at < end && count < ends.size()) {
    if (const std::size_t more = ascii(at, end, ends.subspan(count)); more > 0) {
      at = ends[(count += more) - 1];
      if (ends.size() - count < kAsciiWindow) break;  // and not word by word to fill the last places
    } else {
      ends[count++] = at = next(at, end);
    }
  }
  return count;
}

struct Known {
  SplitRule rule;
  const char* (*next)(const char*, const char*);
  std::string_view expression;
};

constexpr Known kKnown[] = {
    {SplitRule::kGpt2, next_gpt2,
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitRule::kGpt2, next_gpt2,
     R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitRule::kGpt2, next_gpt2,
     R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"},
    {SplitRule::kLlama3, next_llama3<3, true, false>,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitRule::kLlama3, next_llama3<3, true, false>,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {SplitRule::kQwen2, next_llama3<1, true, false>,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitRule::kCl100k, next_llama3<3, true, true>,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"},
    {SplitRule::kTiktokenV1, next_llama3<1, false, false>,
     R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {SplitRule::kO200k, next_o200k<3, true>,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitRule::kTekken, next_o200k<1, false>,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitRule::kDeepSeek3, next_deepseek3,
     R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitRule::kDigits3, next_digits3, R"(\p{N}{1,3})"},
    {SplitRule::kKana, next_kana, "[一-龥぀-ゟ゠-ヿ]+"},
};

const Known& known(SplitRule rule) {
  return *std::find_if(std::begin(kKnown), std::end(kKnown),
                       [rule](const Known& k) { return k.rule == rule; });
}

}  // namespace

std::optional<SplitRule> known_rule(std::string_view expression) {
  std::string plain;  // line ends may stand as they are
  for (const char c : expression) plain += c == '\r' ? "\\r" : c == '\n' ? "\\n" : std::string(1, c);
  for (const Known& k : kKnown)
    if (plain == k.expression) return k.rule;
  return std::nullopt;
}

std::string_view expression_of(SplitRule rule) { return known(rule).expression; }

void split_by_rule(SplitRule rule, std::string_view text, std::vector<Span>& spans) {
  const auto next = known(rule).next;
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

WordCutter::WordCutter(SplitRule rule, Vectors vectors) {
  switch (rule) {
    case SplitRule::kGpt2:
      cut_ = cut_words<next_gpt2>;
      ascii_ = ascii_words<AsciiRule{WordFamily::kGpt2, 0, true}>(vectors);
      break;
    case SplitRule::kLlama3:
      cut_ = cut_words<next_llama3<3, true, false>>;
      ascii_ = ascii_words<AsciiRule{WordFamily::kLlama3, 3, true}>(vectors);
      break;
    case SplitRule::kQwen2:
      cut_ = cut_words<next_llama3<1, true, false>>;
      ascii_ = ascii_words<AsciiRule{WordFamily::kLlama3, 1, true}>(vectors);
      break;
    case SplitRule::kCl100k:
      cut_ = cut_words<next_llama3<3, true, true>>;
      ascii_ = ascii_words<AsciiRule{WordFamily::kLlama3, 3, true}>(vectors);
      break;
    case SplitRule::kTiktokenV1:
      cut_ = cut_words<next_llama3<1, false, false>>;
      ascii_ = ascii_words<AsciiRule{WordFamily::kLlama3, 1, false}>(vectors);
      break;
    case SplitRule::kO200k:
      cut_ = cut_words<next_o200k<3, true>>;
      ascii_ = ascii_words<AsciiRule{WordFamily::kO200k, 3, true}>(vectors);
      break;
    case SplitRule::kTekken:
      cut_ = cut_words<next_o200k<1, false>>;
      ascii_ = ascii_words<AsciiRule{WordFamily::kO200k, 1, false}>(vectors);
      break;
    default:
      COL_CHECK(false, "word cutter: rule must match every character; got {}", static_cast<int>(rule));
  }
}

}  // namespace colonnade::tokenizers
