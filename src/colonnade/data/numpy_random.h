// NumPy's and PyTorch's random number generators, bit for bit, for the distributions used in data order.
// Sources: NumPy's documentation of RandomState and PCG64; O'Neill, "PCG", 2014; Lemire, "Fast random
// integer generation in an interval", 2019.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace colonnade::data {

/// std::mt19937 with output in blocks of 624 numbers, which is three times as fast.
class Mt19937 {
 public:
  explicit Mt19937(std::uint32_t seed);
  std::uint32_t operator()() {
    if (next_ == kSize) [[unlikely]]
      refill();
    return drawn_[next_++];
  }

 private:
  static constexpr std::size_t kSize = 624;
  void refill();
  std::array<std::uint32_t, kSize> state_{}, drawn_{};
  std::size_t next_ = kSize;
};

/// numpy.random.RandomState(seed): MT19937, 32 bits per draw.
class RandomState {
 public:
  explicit RandomState(std::uint32_t seed) : draw_(seed) {}

  /// Uniform in [0, max], by masked rejection. One draw per trial; two, high word first, for max >= 2^32.
  std::uint64_t bounded(std::uint64_t max);

  /// randint(low, high): uniform in [low, high).
  std::int64_t randint(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bounded(static_cast<std::uint64_t>(high - low - 1)));
  }

  /// random_sample(): uniform in [0, 1) with 53 bits.
  double random_sample();

  /// binomial(1, p): true with probability p, by inversion. Draws nothing for p = 0.
  bool bernoulli(double p);

  /// geometric(p) for p below 1/3: number of trials up to the first success, by inversion.
  std::int64_t geometric(double p);

  /// choice(n, p=probabilities): first index whose cumulative probability exceeds one uniform draw.
  std::size_t choice(std::span<const double> probabilities);

  /// shuffle(values): Fisher-Yates from the back. Swap targets are drawn in batches so that they can be
  /// prefetched.
  template <typename T>
  void shuffle(std::span<T> values) {
    std::array<std::uint64_t, 256> targets;
    for (std::size_t left = values.size(); left > 1;) {
      const std::size_t count = draw_targets(left - 1, targets);
      for (std::size_t i = 0; i < count; ++i) __builtin_prefetch(&values[targets[i]], 1);
      for (std::size_t i = 0; i < count; ++i) std::swap(values[--left], values[targets[i]]);
    }
  }

 private:
  /// Draws bounded(max), bounded(max - 1) and so on, at least one; returns how many.
  std::size_t draw_targets(std::uint64_t max, std::span<std::uint64_t> targets);

  Mt19937 draw_;
};

/// numpy.random.default_rng(seed): PCG64 (XSL-RR) seeded through SeedSequence.
class Pcg64 {
 public:
  explicit Pcg64(std::uint32_t seed);

  /// Next 32 bits; a 64-bit draw yields its low half first.
  std::uint32_t next32();

  /// integers(low, high, dtype=int32): uniform in [low, high), by Lemire's multiplication.
  std::int32_t integers(std::int32_t low, std::int32_t high);

 private:
  using Uint128 = unsigned __int128;
  std::uint64_t next64();

  Uint128 state_ = 0;
  Uint128 increment_ = 0;
  std::uint32_t high_half_ = 0;
  bool has_high_half_ = false;
};

/// torch.randperm(n, generator=torch.Generator().manual_seed(seed)) on the CPU.
std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed);

}  // namespace colonnade::data
