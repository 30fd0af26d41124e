// Philox4x32-10: random numbers as a pure function of (key, counter), so every layout draws the same value
// for the same global element. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace colonnade {

/// 64-bit FNV-1a with a finalizer: a hash that is stable across machines and versions.
constexpr std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t h = 14695981039346656037ULL;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdULL;
  h ^= h >> 33;
  return h;
}

/// Four independent uniform 32-bit words for (key, counter). The counter's high 64 bits select the stream.
struct Philox {
  std::uint64_t key = 0;

  [[nodiscard]] constexpr std::array<std::uint32_t, 4> operator()(std::uint64_t counter,
                                                                  std::uint64_t stream = 0) const {
    std::uint32_t c0 = static_cast<std::uint32_t>(counter);
    std::uint32_t c1 = static_cast<std::uint32_t>(counter >> 32);
    std::uint32_t c2 = static_cast<std::uint32_t>(stream);
    std::uint32_t c3 = static_cast<std::uint32_t>(stream >> 32);
    std::uint32_t k0 = static_cast<std::uint32_t>(key);
    std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0;
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c2;
      c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<std::uint32_t>(p1);
      c3 = static_cast<std::uint32_t>(p0);
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    return {c0, c1, c2, c3};
  }
};

/// A 32-bit word mapped to a float in [0, 1), from its upper 24 bits.
constexpr float uniform(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1.0p-24F; }

}  // namespace colonnade
