// NumPy's and PyTorch's random numbers, bit for bit, as far as the order of training data needs them.
// Sources: NumPy's documentation of RandomState and PCG64; O'Neill, "PCG", 2014; Lemire, "Fast random
// integer generation in an interval", 2019.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace colonnade::data {

/// numpy.random.RandomState(seed): MT19937, 32 bits a draw.
class RandomState {
 public:
  explicit RandomState(std::uint32_t seed) : draw_(seed) {}

  /// Uniform in [0, max], by masked rejection. One draw a trial; two, high word first, when max >= 2^32.
  std::uint64_t bounded(std::uint64_t max);

  /// randint(low, high): uniform in [low, high).
  std::int64_t randint(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bounded(static_cast<std::uint64_t>(high - low - 1)));
  }

  /// random_sample(): uniform in [0, 1) with 53 bits.
  double random_sample();

  /// binomial(1, p): true with probability p, by inversion. No draw for p = 0.
  bool bernoulli(double p);

  /// geometric(p), p below 1/3: trials up to the first success, by inversion.
  std::int64_t geometric(double p);

  /// choice(n, p=probabilities): the first number whose summed probabilities exceed one draw.
  std::size_t choice(std::span<const double> probabilities);

  /// shuffle(values): Fisher-Yates from the back.
  template <typename T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[bounded(i)]);
  }

 private:
  std::mt19937 draw_;
};

/// numpy.random.default_rng(seed): PCG64 (XSL-RR) seeded through SeedSequence.
class Pcg64 {
 public:
  explicit Pcg64(std::uint32_t seed);

  /// The next 32 bits; a 64-bit draw gives its low half first.
  std::uint32_t next32();

  /// integers(low, high, dtype=int32): uniform in [low, high), by Lemire's multiplication.
  std::int32_t integers(std::int32_t low, std::int32_t high);

 private:
  using Uint128 = unsigned __int128;
  std::uint64_t next64();

  Uint128 state_ = 0;
  Uint128 increment_ = 0;
  std::uint32_t kept_ = 0;
  bool has_kept_ = false;
};

/// torch.randperm(n, generator=torch.Generator().manual_seed(seed)) on the CPU.
std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed);

}  // namespace colonnade::data
