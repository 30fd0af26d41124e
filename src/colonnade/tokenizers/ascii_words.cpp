// See ascii_words.h. Bit i of every mask is the byte at + i.
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
  std::uint64_t letters = 0, upper = 0, digits = 0, whitespace = 0, newlines = 0, spaces = 0, quotes = 0,
                slashes = 0;
  std::uint64_t other = 0;  ///< not ASCII
};

/// Classifies 64 bytes, 16 at a time. Vector compares give bytes of 0 or -1.
struct Baseline {
  using Bytes = signed char __attribute__((vector_size(16)));

  /// One bit per byte of 0 or -1.
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
      masks.whitespace |= bits_of((v == ' ') | ((v >= '\t') & (v <= '\r'))) << i;
      masks.newlines |= bits_of((v == '\n') | (v == '\r')) << i;
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

/// Classifies 64 bytes, 32 at a time.
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
    masks.whitespace = masks.spaces | (above(v, '\t' - 1) & ~above(v, '\r'));
    masks.newlines = is(v, '\n') | is(v, '\r');
    masks.quotes = is(v, '\'');
    masks.slashes = is(v, '/');
    masks.other = bits(v.low, v.high);
    return masks;
  }
};

/// Classifies 64 bytes at once.
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
    masks.whitespace = masks.spaces | within(v, '\t', '\r');
    masks.newlines = is(v, '\n') | is(v, '\r');
    masks.quotes = is(v, '\'');
    masks.slashes = is(v, '/');
    masks.other = _mm512_movepi8_mask(v);
    return masks;
  }
};
#endif

/// Mask of the bits below `bit`.
std::uint64_t below(int bit) { return bit >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bit) - 1; }

/// Length of the contraction at the apostrophe `quote`, the apostrophe included; 0 if there is none. `size`:
/// bytes in the window.
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

/// Makes the contractions at `quotes` separate words (kSuffix: parts of the words before them).
template <bool kAnyCase, bool kSuffix>
std::uint64_t split_contractions(const char* bytes, int size, std::uint64_t quotes, std::uint64_t letters,
                                 std::uint64_t starts) {
  for (int done = -1; quotes != 0; quotes &= quotes - 1) {
    const int quote = std::countr_zero(quotes);
    const int length = kSuffix && quote == done ? 0 : contraction<kAnyCase>(bytes, quote, size);
    if (length == 0) continue;
    done = quote + length;
    starts &= ~(below(done) & ~below(kSuffix ? quote : quote + 1));
    if (done < 64) starts |= letters & std::uint64_t{1} << done;
  }
  return starts;
}

/// Starts of the white space that follows the last newline of its run.
/// `blanks`: white space other than newlines; `newlines`: newlines that do not belong to symbols.
std::uint64_t after_newlines(std::uint64_t blanks, std::uint64_t newlines, int size) {
  std::uint64_t starts = newlines << 1 & blanks;
  if (starts == 0) return 0;
  const std::uint64_t inside = below(size);
  if ((blanks >> (size - 1) & 1) != 0) {  // a run that reaches the end of the window is undecided
    const std::uint64_t rest = ~blanks & inside;
    starts &= below(rest == 0 ? 0 : 64 - std::countl_zero(rest));
  }
  for (std::uint64_t wrong = (blanks + starts) & newlines; wrong != 0; wrong &= wrong - 1) {
    const std::uint64_t before = starts & (below(std::countr_zero(wrong)));
    starts &= ~std::bit_floor(before);
  }
  return starts;
}

std::uint64_t word_starts_gpt2(const char* bytes, const Masks& m, int size) {
  const std::uint64_t symbols = below(size) & ~(m.letters | m.digits | m.whitespace);
  const std::uint64_t last =
      m.whitespace & (m.letters | m.digits | symbols) >> 1;  // last character of a run of white space
  const std::uint64_t joined = (last & m.spaces) << 1;
  const auto first = [](std::uint64_t run) { return run & ~(run << 1); };
  std::uint64_t starts =
      first(m.whitespace) | last | ((first(m.letters) | first(m.digits) | first(symbols)) & ~joined);
  const std::uint64_t quotes = m.quotes & starts & m.letters >> 1;
  if ((quotes & ~below(size - 2)) != 0)
    starts &= below(size - 1);  // undecided: a second letter may follow the window
  return quotes == 0 ? starts : split_contractions<false, false>(bytes, size, quotes, m.letters, starts);
}

/// Word starts of the patterns derived from Llama-3's and o200k's.
template <AsciiPattern kPattern>
std::uint64_t word_starts_llama3(const char* bytes, const Masks& m, int size) {
  constexpr bool kCased = kPattern.base == BasePattern::kO200k;
  const auto first = [](std::uint64_t run) { return run & ~(run << 1); };
  const std::uint64_t symbols = below(size) & ~(m.letters | m.digits | m.whitespace);
  const std::uint64_t tails =
      m.newlines & ~(m.newlines + (symbols << 1 & m.newlines));  // newlines that belong to symbols
  const std::uint64_t whitespace = m.whitespace & ~tails, blanks = whitespace & ~m.newlines;
  const std::uint64_t last = blanks & (m.letters | m.digits | symbols) >> 1;
  const std::uint64_t spaced = (last & m.spaces) << 1;  // symbols with a leading space
  const std::uint64_t symbol = first(symbols) & ~spaced;
  const std::uint64_t prefix = last | symbol;  // one-character prefix of a word
  std::uint64_t starts = first(whitespace) | last | after_newlines(blanks, whitespace & m.newlines, size) |
                         symbol | (first(m.letters) & ~(prefix << 1));
  if constexpr (kPattern.max_digits == 1) {
    starts |= m.digits;
  } else {
    const std::uint64_t three = m.digits & m.digits >> 1 & m.digits >> 2;
    std::uint64_t begin = first(m.digits);
    for (starts |= begin; begin != 0; starts |= begin) begin = (begin & three) << 3 & m.digits;
  }
  if constexpr (kCased) starts |= m.letters & m.upper & (m.letters & ~m.upper) << 1;
  if constexpr (kPattern.contractions) {
    if constexpr (kCased) {  // undecided: the last two bytes may extend the word before them
      const std::uint64_t near = m.quotes & m.letters << 1 & ~below(size - 2);
      starts &= below(std::countr_zero(near));
    }
    const std::uint64_t quotes = m.quotes & m.letters >> 1 & (kCased ? m.letters << 1 : symbol);
    if (quotes != 0) starts = split_contractions<true, kCased>(bytes, size, quotes, m.letters, starts);
  }
  return starts;
}

/// Word starts in the 64 bytes from `at`, itself a word start, without bit 0. No bit is wrong and none
/// between two bits is missing, whatever follows the window. There are none after the first non-ASCII byte.
template <AsciiPattern kPattern, typename Classes>
std::uint64_t word_starts(const char* at, const char* end) {
  std::array<char, 64> copy;
  int size = 64;
  if (end - at < size) {
    size = static_cast<int>(end - at);
    copy.fill('\0');
    std::memcpy(copy.data(), at, static_cast<std::size_t>(size));
    at = copy.data();
  }
  Masks m = Classes::classify(at);
  // Symbols of o200k continue after a newline and a slash: the scalar pattern handles these.
  if constexpr (kPattern.base == BasePattern::kO200k) m.other |= m.slashes & m.newlines << 1;
  size = std::min(size, std::countr_zero(m.other));
  if (size < 2) return 0;
  const std::uint64_t inside = below(size);
  for (std::uint64_t* mask : {&m.letters, &m.digits, &m.whitespace, &m.newlines, &m.spaces, &m.quotes})
    *mask &= inside;
  std::uint64_t starts = 0;
  if constexpr (kPattern.base == BasePattern::kGpt2) {
    starts = word_starts_gpt2(at, m, size);
  } else {
    starts = word_starts_llama3<kPattern>(at, m, size);
  }
  return starts & inside & ~std::uint64_t{1};
}

/// Writes eight ends at a time, however many there are: the trip count of an exact loop would be
/// mispredicted.
template <AsciiPattern kPattern, typename Classes>
std::size_t split_windows(const char* at, const char* end, std::span<const char*> ends) {
  std::size_t count = 0;
  while (at < end && count + kAsciiWindow <= ends.size()) {
    std::uint64_t starts = word_starts<kPattern, Classes>(at, end);
    if (starts == 0) break;
    const auto more = static_cast<std::size_t>(std::popcount(starts));
    for (std::size_t done = 0; done < more; done += 8)
      for (std::size_t i = 0; i < 8; ++i, starts &= starts - 1)
        ends[count + done + i] = at + std::countr_zero(starts);
    at = ends[(count += more) - 1];
  }
  return count;
}

template <AsciiPattern kPattern>
[[gnu::flatten]] std::size_t split_baseline(const char* at, const char* end, std::span<const char*> ends) {
  return split_windows<kPattern, Baseline>(at, end, ends);
}
#ifdef __x86_64__
template <AsciiPattern kPattern>
[[COL_AVX2, gnu::flatten]] std::size_t split_avx2(const char* at, const char* end,
                                                  std::span<const char*> ends) {
  return split_windows<kPattern, Avx2>(at, end, ends);
}
template <AsciiPattern kPattern>
[[COL_AVX512, gnu::flatten]] std::size_t split_avx512(const char* at, const char* end,
                                                      std::span<const char*> ends) {
  return split_windows<kPattern, Avx512>(at, end, ends);
}
#endif

}  // namespace

SimdLevel best_simd_level() {
#if COL_SIMD && defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("bmi") != 0 &&
                        __builtin_cpu_supports("bmi2") != 0 && __builtin_cpu_supports("popcnt") != 0;
  if (!has_avx2) return SimdLevel::kBaseline;
  const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
  return has_avx512 ? SimdLevel::kAvx512 : SimdLevel::kAvx2;
#else
  return SimdLevel::kBaseline;
#endif
}

template <AsciiPattern kPattern>
AsciiSplitter ascii_splitter(SimdLevel level) {
#ifdef __x86_64__
  if (level == SimdLevel::kAvx512) return split_avx512<kPattern>;
  if (level == SimdLevel::kAvx2) return split_avx2<kPattern>;
#endif
  return split_baseline<kPattern>;
}

template AsciiSplitter ascii_splitter<AsciiPattern{BasePattern::kGpt2, 0, true}>(SimdLevel);
template AsciiSplitter ascii_splitter<AsciiPattern{BasePattern::kLlama3, 3, true}>(SimdLevel);
template AsciiSplitter ascii_splitter<AsciiPattern{BasePattern::kLlama3, 1, true}>(SimdLevel);
template AsciiSplitter ascii_splitter<AsciiPattern{BasePattern::kLlama3, 1, false}>(SimdLevel);
template AsciiSplitter ascii_splitter<AsciiPattern{BasePattern::kO200k, 3, true}>(SimdLevel);
template AsciiSplitter ascii_splitter<AsciiPattern{BasePattern::kO200k, 1, false}>(SimdLevel);

}  // namespace colonnade::tokenizers
