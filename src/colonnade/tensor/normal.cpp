// See normal.h. One body of plain loops over blocks of counters, compiled for three vector widths.
#include "colonnade/tensor/normal.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "colonnade/base/simd.h"

namespace colonnade::tensor {
namespace {

constexpr int kCounters = 64;  // counters per block: all its words fit in L1 cache
constexpr int kNumbers = 4 * kCounters;

struct Words {
  alignas(64) std::uint32_t w[4][kCounters];
};

/// Philox of kCounters counters at once, as Philox::operator() with stream 0.
[[gnu::always_inline]] inline void philox(std::uint64_t key, std::uint64_t counter, Words& words) {
  auto& [c0, c1, c2, c3] = words.w;
  for (int i = 0; i < kCounters; ++i) {
    const std::uint64_t c = counter + static_cast<std::uint64_t>(i);
    c0[i] = static_cast<std::uint32_t>(c);
    c1[i] = static_cast<std::uint32_t>(c >> 32);
    c2[i] = c3[i] = 0;
  }
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kCounters; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0[i];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c2[i];
      c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c1[i] = static_cast<std::uint32_t>(p1);
      c3[i] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
}

/// sqrt(-2 log(n / 2^24)) for n = (word >> 8) + 1. With n = 2^e m, m in [2/3, 4/3), log m = 2 atanh z for
/// z = (m - 1) / (m + 1); the series up to z^9 reaches float precision.
[[gnu::always_inline]] inline float radius(std::uint32_t word) {
  const auto n = static_cast<float>(static_cast<std::int32_t>(word >> 8) + 1);
  const auto bits = std::bit_cast<std::int32_t>(n);
  const std::int32_t exponent = (bits - 0x3f2aaaab) >> 23;
  const auto m = std::bit_cast<float>(bits - (exponent << 23));
  const float z = (m - 1.0F) / (m + 1.0F);
  const float z2 = z * z;
  const float series = 1.0F + z2 * (1.0F / 3 + z2 * (1.0F / 5 + z2 * (1.0F / 7 + z2 * (1.0F / 9))));
  const float log = static_cast<float>(exponent - 24) * 0.693147181F + 2.0F * z * series;
  return std::sqrt(-2.0F * log);
}

/// Cosine and sine of 2 pi word / 2^32: reduction to the nearest quarter turn, then Taylor series.
[[gnu::always_inline]] inline void sincos_turn(std::uint32_t word, float& cosine, float& sine) {
  const std::uint32_t quarter = (word + 0x20000000U) >> 30;
  const auto rest = static_cast<float>(static_cast<std::int32_t>(word - (quarter << 30)));
  const float y = rest * 1.46291807927e-9F;  // 2 pi / 2^32: y within +- pi / 4
  const float y2 = y * y;
  const float s =
      y * (1.0F + y2 * (-1.0F / 6 + y2 * (1.0F / 120 + y2 * (-1.0F / 5040 + y2 * (1.0F / 362880)))));
  const float c = 1.0F + y2 * (-1.0F / 2 + y2 * (1.0F / 24 + y2 * (-1.0F / 720 + y2 * (1.0F / 40320))));
  const bool swapped = (quarter & 1U) != 0;
  const float cos_abs = swapped ? s : c;
  const float sin_abs = swapped ? c : s;
  cosine = ((quarter + 1U) & 2U) != 0 ? -cos_abs : cos_abs;
  sine = (quarter & 2U) != 0 ? -sin_abs : sin_abs;
}

/// The kNumbers numbers of kCounters counters.
[[gnu::always_inline]] inline void block(std::uint64_t key, std::uint64_t counter, float std, float* out) {
  Words words;
  philox(key, counter, words);
  alignas(64) float parts[4][kCounters];
  for (int j = 0; j < 4; j += 2)
    for (int i = 0; i < kCounters; ++i) {
      const float length = radius(words.w[j][i]) * std;
      float cosine = 0, sine = 0;
      sincos_turn(words.w[j + 1][i], cosine, sine);
      parts[j][i] = length * cosine;
      parts[j + 1][i] = length * sine;
    }
  for (int i = 0; i < kCounters; ++i)
    for (int j = 0; j < 4; ++j) out[4 * i + j] = parts[j][i];
}

using Block = void (*)(std::uint64_t key, std::uint64_t counter, float std, float* out);

#if COL_SIMD && defined(__x86_64__)
[[gnu::target("avx512f,avx512dq,prefer-vector-width=512")]] void block_avx512(std::uint64_t key,
                                                                              std::uint64_t counter,
                                                                              float std, float* out) {
  block(key, counter, std, out);
}
[[gnu::target("avx2")]] void block_avx2(std::uint64_t key, std::uint64_t counter, float std, float* out) {
  block(key, counter, std, out);
}
#endif
void block_plain(std::uint64_t key, std::uint64_t counter, float std, float* out) {
  block(key, counter, std, out);
}

Block best_block() {
#if COL_SIMD && defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return block_avx512;
  if (__builtin_cpu_supports("avx2")) return block_avx2;
#endif
  return block_plain;
}

}  // namespace

void normal_run(const Philox& draw, std::int64_t first, std::int64_t count, float std, float* out) {
  static const Block kBlock = best_block();
  float partial[kNumbers];
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t g = first + done;
    const std::int64_t offset = g % 4;
    const std::int64_t take = std::min(count - done, kNumbers - offset);
    const auto counter = static_cast<std::uint64_t>(g / 4);
    if (take == kNumbers) {
      kBlock(draw.key, counter, std, out + done);
    } else {
      kBlock(draw.key, counter, std, partial);
      std::copy_n(partial + offset, take, out + done);
    }
    done += take;
  }
}

}  // namespace colonnade::tensor
