// See ascii_words.h. Bit i of every mask stands for the byte at + i.
#include "colonnade/tokenizers/ascii_words.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "colonnade/base/simd.h"

namespace colonnade::tokenizers {
namespace {

struct Masks {
  std::uint64_t letters = 0, upper = 0, digits = 0, gaps = 0, lines = 0, spaces = 0, quotes = 0, slashes = 0;
  std::uint64_t other = 0;  ///< not ASCII
};

/// Classes of 64 bytes, sixteen at a time. Comparing gives bytes of 0 or -1.
struct Plain {
  using Bytes = signed char __attribute__((vector_size(16)));

  /// One bit for each byte of 0 or -1.
  static std::uint64_t bits_of(Bytes bytes) {
#ifdef __x86_64__
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
  static Masks classify(const char* bytes) {
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
};

#ifdef __x86_64__
#define COL_AVX2 gnu::target("avx2,bmi,bmi2,popcnt")
#define COL_AVX512 gnu::target("avx2,bmi,bmi2,popcnt,avx512f,avx512bw")

/// The same, 32 at a time.
struct Avx2 {
  struct Pair {
    __m256i low, high;
  };
  [[COL_AVX2]] static std::uint64_t is(const Pair& v, char c) {
    const __m256i wanted = _mm256_set1_epi8(c);
    return bits(_mm256_cmpeq_epi8(v.low, wanted), _mm256_cmpeq_epi8(v.high, wanted));
  }
  [[COL_AVX2]] static std::uint64_t above(const Pair& v, char c) {
    const __m256i least = _mm256_set1_epi8(c);
    return bits(_mm256_cmpgt_epi8(v.low, least), _mm256_cmpgt_epi8(v.high, least));
  }
  [[COL_AVX2]] static std::uint64_t bits(__m256i low, __m256i high) {
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(low)) |
           std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(high))} << 32;
  }
  [[COL_AVX2]] static Masks classify(const char* bytes) {
    const auto* halves = reinterpret_cast<const __m256i*>(bytes);
    const Pair v = {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
    const __m256i bit = _mm256_set1_epi8(0x20);
    const Pair small = {_mm256_or_si256(v.low, bit), _mm256_or_si256(v.high, bit)};
    Masks masks;
    masks.letters = above(small, 'a' - 1) & ~above(small, 'z');
    masks.upper = ~above(v, 'Z');
    masks.digits = above(v, '0' - 1) & ~above(v, '9');
    masks.spaces = is(v, ' ');
    masks.gaps = masks.spaces | (above(v, '\t' - 1) & ~above(v, '\r'));
    masks.lines = is(v, '\n') | is(v, '\r');
    masks.quotes = is(v, '\'');
    masks.slashes = is(v, '/');
    masks.other = bits(v.low, v.high);
    return masks;
  }
};

/// The same, all at once.
struct Avx512 {
  [[COL_AVX512]] static std::uint64_t is(__m512i v, char c) {
    return _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(c));
  }
  [[COL_AVX512]] static std::uint64_t within(__m512i v, char first, char last) {
    return _mm512_cmple_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8(first)),
                                  _mm512_set1_epi8(static_cast<char>(last - first)));
  }
  [[COL_AVX512]] static Masks classify(const char* bytes) {
    const __m512i v = _mm512_loadu_si512(bytes);
    Masks masks;
    masks.letters = within(_mm512_or_si512(v, _mm512_set1_epi8(0x20)), 'a', 'z');
    masks.upper = _mm512_cmple_epi8_mask(v, _mm512_set1_epi8('Z'));
    masks.digits = within(v, '0', '9');
    masks.spaces = is(v, ' ');
    masks.gaps = masks.spaces | within(v, '\t', '\r');
    masks.lines = is(v, '\n') | is(v, '\r');
    masks.quotes = is(v, '\'');
    masks.slashes = is(v, '/');
    masks.other = _mm512_movepi8_mask(v);
    return masks;
  }
};
#endif

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

/// A word begins at `at`. The bits of those of the 64 bytes from `at` on where further words begin, bit 0
/// left out: no bit is wrong and none between two bits is missing, whatever follows the window. Bytes behind
/// the first that is not ASCII have none.
template <AsciiRule kRule, typename Classes>
std::uint64_t word_begins(const char* at, const char* end) {
  std::array<char, 64> copy;
  int size = 64;
  if (end - at < size) {
    size = static_cast<int>(end - at);
    copy.fill('\0');
    std::memcpy(copy.data(), at, static_cast<std::size_t>(size));
    at = copy.data();
  }
  Masks m = Classes::classify(at);
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

/// Eight ends at a time are written, however many there are: a loop over them would end where the processor
/// does not expect it.
template <AsciiRule kRule, typename Classes>
std::size_t cut(const char* at, const char* end, std::span<const char*> ends) {
  std::size_t count = 0;
  while (at < end && count + kAsciiWindow <= ends.size()) {
    std::uint64_t begins = word_begins<kRule, Classes>(at, end);
    if (begins == 0) break;
    const auto more = static_cast<std::size_t>(std::popcount(begins));
    for (std::size_t done = 0; done < more; done += 8)
      for (std::size_t i = 0; i < 8; ++i, begins &= begins - 1)
        ends[count + done + i] = at + std::countr_zero(begins);
    at = ends[(count += more) - 1];
  }
  return count;
}

template <AsciiRule kRule>
[[gnu::flatten]] std::size_t cut_plain(const char* at, const char* end, std::span<const char*> ends) {
  return cut<kRule, Plain>(at, end, ends);
}
#ifdef __x86_64__
template <AsciiRule kRule>
[[COL_AVX2, gnu::flatten]] std::size_t cut_avx2(const char* at, const char* end,
                                                std::span<const char*> ends) {
  return cut<kRule, Avx2>(at, end, ends);
}
template <AsciiRule kRule>
[[COL_AVX512, gnu::flatten]] std::size_t cut_avx512(const char* at, const char* end,
                                                    std::span<const char*> ends) {
  return cut<kRule, Avx512>(at, end, ends);
}
#endif

}  // namespace

Vectors widest_vectors() {
#if COL_SIMD && defined(__x86_64__)
  const bool words = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("bmi") != 0 &&
                     __builtin_cpu_supports("bmi2") != 0 && __builtin_cpu_supports("popcnt") != 0;
  if (!words) return Vectors::kPlain;
  const bool wide = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
  return wide ? Vectors::kAvx512 : Vectors::kAvx2;
#else
  return Vectors::kPlain;
#endif
}

template <AsciiRule kRule>
AsciiWords ascii_words(Vectors vectors) {
#ifdef __x86_64__
  if (vectors == Vectors::kAvx512) return cut_avx512<kRule>;
  if (vectors == Vectors::kAvx2) return cut_avx2<kRule>;
#endif
  return cut_plain<kRule>;
}

template AsciiWords ascii_words<AsciiRule{WordFamily::kGpt2, 0, true}>(Vectors);
template AsciiWords ascii_words<AsciiRule{WordFamily::kLlama3, 3, true}>(Vectors);
template AsciiWords ascii_words<AsciiRule{WordFamily::kLlama3, 1, true}>(Vectors);
template AsciiWords ascii_words<AsciiRule{WordFamily::kLlama3, 1, false}>(Vectors);
template AsciiWords ascii_words<AsciiRule{WordFamily::kO200k, 3, true}>(Vectors);
template AsciiWords ascii_words<AsciiRule{WordFamily::kO200k, 1, false}>(Vectors);

}  // namespace colonnade::tokenizers
