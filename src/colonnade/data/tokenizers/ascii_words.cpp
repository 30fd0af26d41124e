// See ascii_words.h. Bit i of every mask stands for the byte at + i.
#include "colonnade/data/tokenizers/ascii_words.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace colonnade::data {
namespace {

struct Masks {
  std::uint64_t letters = 0, upper = 0, digits = 0, gaps = 0, lines = 0, spaces = 0, quotes = 0, slashes = 0;
  std::uint64_t other = 0;  ///< not ASCII
};

/// Sixteen bytes; comparing gives bytes of 0 or -1.
using Bytes = signed char __attribute__((vector_size(16)));

/// One bit for each byte of 0 or -1.
std::uint64_t bits_of(Bytes bytes) {
#ifdef __SSE2__
  return static_cast<std::uint32_t>(_mm_movemask_epi8(reinterpret_cast<__m128i>(bytes)));
#else
  std::array<std::uint64_t, 2> halves{};
  std::memcpy(halves.data(), &bytes, 16);
  const auto gathered = [](std::uint64_t half) {
    return ((half & 0x8040201008040201ULL) * 0x0101010101010101ULL) >> 56;
  };
  return gathered(halves[0]) | gathered(halves[1]) << 8;
#endif
}

/// Classes of 64 bytes.
Masks classify(const char* bytes) {
  Masks masks;
  for (int i = 0; i < 64; i += 16) {
    Bytes v;
    std::memcpy(&v, bytes + i, 16);
    const Bytes small = v | 0x20;
    masks.letters |= bits_of((small >= 'a') & (small <= 'z')) << i;
    masks.upper |= bits_of(v <= 'Z') << i;
    masks.digits |= bits_of((v >= '0') & (v <= '9')) << i;
    masks.gaps |= bits_of((v == ' ') | ((v >= '\t') & (v <= '\r'))) << i;
    masks.lines |= bits_of((v == '\n') | (v == '\r')) << i;
    masks.spaces |= bits_of(v == ' ') << i;
    masks.quotes |= bits_of(v == '\'') << i;
    masks.slashes |= bits_of(v == '/') << i;
    masks.other |= bits_of(v < 0) << i;
  }
  return masks;
}

std::uint64_t below(int bit) { return bit >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bit) - 1; }

/// Bytes of a contraction behind an apostrophe at `quote`, the apostrophe included; 0: none. `size`: of the
/// window.
template <bool kAnyCase>
int contraction(const char* bytes, int quote, int size) {
  const auto letter = [&](int i) {
    if (quote + i >= size) return '\0';
    const char c = bytes[quote + i];
    return static_cast<char>(kAnyCase && c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  };
  const char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  return ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l') ? 3 : 0;
}

/// Makes the contractions behind `quotes` words of their own (kSuffix: the ends of the words before them).
template <bool kAnyCase, bool kSuffix>
std::uint64_t cut_contractions(const char* bytes, int size, std::uint64_t quotes, std::uint64_t letters,
                               std::uint64_t begins) {
  for (int done = -1; quotes != 0; quotes &= quotes - 1) {
    const int quote = std::countr_zero(quotes);
    const int length = kSuffix && quote == done ? 0 : contraction<kAnyCase>(bytes, quote, size);
    if (length == 0) continue;
    done = quote + length;
    begins &= ~(below(done) & ~below(kSuffix ? quote : quote + 1));
    if (done < 64) begins |= letters & std::uint64_t{1} << done;
  }
  return begins;
}

/// Where white space begins that follows the last line end of its run and is not the only character there.
/// `blanks`: white space but line ends; `lines`: line ends that are white space of their own.
std::uint64_t behind_lines(std::uint64_t blanks, std::uint64_t lines, int size) {
  std::uint64_t begins = lines << 1 & blanks;
  if (begins == 0) return 0;
  const std::uint64_t inside = below(size);
  if ((blanks >> (size - 1) & 1) != 0) {  // the run that touches the end of the window is not known
    const std::uint64_t rest = ~blanks & inside;
    begins &= below(rest == 0 ? 0 : 64 - std::countl_zero(rest));
  }
  for (std::uint64_t wrong = (blanks + begins) & lines; wrong != 0; wrong &= wrong - 1) {
    const std::uint64_t before = begins & (below(std::countr_zero(wrong)));
    begins &= ~std::bit_floor(before);
  }
  return begins;
}

std::uint64_t begins_gpt2(const char* bytes, const Masks& m, int size) {
  const std::uint64_t signs = below(size) & ~(m.letters | m.digits | m.gaps);
  const std::uint64_t last = m.gaps & (m.letters | m.digits | signs) >> 1;  // of a run of white space
  const std::uint64_t joined = (last & m.spaces) << 1;
  const auto first = [](std::uint64_t run) { return run & ~(run << 1); };
  std::uint64_t begins =
      first(m.gaps) | last | ((first(m.letters) | first(m.digits) | first(signs)) & ~joined);
  const std::uint64_t quotes = m.quotes & begins & m.letters >> 1;
  if ((quotes & ~below(size - 2)) != 0)
    begins &= below(size - 1);  // whether a second letter follows is not known
  return quotes == 0 ? begins : cut_contractions<false, false>(bytes, size, quotes, m.letters, begins);
}

/// Llama-3's and o200k's.
template <AsciiRule kRule>
std::uint64_t begins_llama3(const char* bytes, const Masks& m, int size) {
  constexpr bool kCased = kRule.family == WordFamily::kO200k;
  const auto first = [](std::uint64_t run) { return run & ~(run << 1); };
  const std::uint64_t signs = below(size) & ~(m.letters | m.digits | m.gaps);
  const std::uint64_t tails =
      m.lines & ~(m.lines + (signs << 1 & m.lines));  // line ends that belong to signs
  const std::uint64_t gaps = m.gaps & ~tails, blanks = gaps & ~m.lines;
  const std::uint64_t last = blanks & (m.letters | m.digits | signs) >> 1;
  const std::uint64_t spaced = (last & m.spaces) << 1;  // behind a space that signs take
  const std::uint64_t sign = first(signs) & ~spaced;
  const std::uint64_t prefix = last | sign;  // one character that letters take
  std::uint64_t begins = first(gaps) | last | behind_lines(blanks, gaps & m.lines, size) | sign |
                         (first(m.letters) & ~(prefix << 1));
  if constexpr (kRule.digits == 1) {
    begins |= m.digits;
  } else {
    const std::uint64_t three = m.digits & m.digits >> 1 & m.digits >> 2;
    std::uint64_t begin = first(m.digits);
    for (begins |= begin; begin != 0; begins |= begin) begin = (begin & three) << 3 & m.digits;
  }
  if constexpr (kCased) begins |= m.letters & m.upper & (m.letters & ~m.upper) << 1;
  if constexpr (kRule.contractions) {
    if constexpr (kCased) {  // whether the last two bytes end the word before them is not known
      const std::uint64_t near = m.quotes & m.letters << 1 & ~below(size - 2);
      begins &= below(std::countr_zero(near));
    }
    const std::uint64_t quotes = m.quotes & m.letters >> 1 & (kCased ? m.letters << 1 : sign);
    if (quotes != 0) begins = cut_contractions<true, kCased>(bytes, size, quotes, m.letters, begins);
  }
  return begins;
}

}  // namespace

template <AsciiRule kRule>
std::uint64_t ascii_word_begins(const char* at, const char* end) {
  std::array<char, 64> copy;
  int size = 64;
  if (end - at < size) {
    size = static_cast<int>(end - at);
    copy.fill('\0');
    std::memcpy(copy.data(), at, static_cast<std::size_t>(size));
    at = copy.data();
  }
  Masks m = classify(at);
  // o200k's signs go on behind a line end and a slash: that is left to the rule itself.
  if constexpr (kRule.family == WordFamily::kO200k) m.other |= m.slashes & m.lines << 1;
  size = std::min(size, std::countr_zero(m.other));
  if (size < 2) return 0;
  const std::uint64_t inside = below(size);
  for (std::uint64_t* mask : {&m.letters, &m.digits, &m.gaps, &m.lines, &m.spaces, &m.quotes})
    *mask &= inside;
  std::uint64_t begins = 0;
  if constexpr (kRule.family == WordFamily::kGpt2) {
    begins = begins_gpt2(at, m, size);
  } else {
    begins = begins_llama3<kRule>(at, m, size);
  }
  return begins & inside & ~std::uint64_t{1};
}

template std::uint64_t ascii_word_begins<AsciiRule{WordFamily::kGpt2, 0, true}>(const char*, const char*);
template std::uint64_t ascii_word_begins<AsciiRule{WordFamily::kLlama3, 3, true}>(const char*, const char*);
template std::uint64_t ascii_word_begins<AsciiRule{WordFamily::kLlama3, 1, true}>(const char*, const char*);
template std::uint64_t ascii_word_begins<AsciiRule{WordFamily::kLlama3, 1, false}>(const char*, const char*);
template std::uint64_t ascii_word_begins<AsciiRule{WordFamily::kO200k, 3, true}>(const char*, const char*);
template std::uint64_t ascii_word_begins<AsciiRule{WordFamily::kO200k, 1, false}>(const char*, const char*);

}  // namespace colonnade::data
