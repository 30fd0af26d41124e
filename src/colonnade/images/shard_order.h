// In which order samples that lie in shards are read: at random, yet from few places at a time.
#pragma once

#include <cstdint>

namespace colonnade::images {

/// A permutation of 0 .. size-1 as a function: a Feistel network over Philox whose values beyond size are
/// walked on from. No memory. Source: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
/// 2002.
class Permutation {
 public:
  Permutation(std::uint64_t key, std::uint64_t stream, std::int64_t size);
  /// Not checked: 0 <= i < size.
  [[nodiscard]] std::int64_t operator()(std::int64_t i) const;

 private:
  std::uint64_t key_, stream_, size_;
  int half_bits_;
};

/// The endless order of a run over `samples` samples, a function of (seed, number): nothing else is state, so
/// a run goes on from its number of samples with any number of ranks and threads.
///
/// Number n is place p = n % samples of epoch e = n / samples, where each sample comes once:
/// 1. The samples in the order of shards, rotated by r(seed, e), are cut into blocks of `block`; the last one
///    may be shorter. The blocks are permuted, P(seed, e), but for a shorter one, which stays last.
/// 2. The samples so ordered are cut into windows of `block` * `window` places, permuted in each, Q(seed, e,
/// w). So what is read between two places that are a window apart comes from `window` stretches of shards:
/// the window is the shuffle buffer, in the page cache instead of in memory.
class ShardOrder {
 public:
  /// Throws ConfigError unless samples, block and window are above 0.
  ShardOrder(std::int64_t samples, std::uint64_t seed, std::int64_t block, std::int64_t window);
  /// The sample that number n stands for; n >= 0.
  [[nodiscard]] std::int64_t operator()(std::int64_t n) const;
  [[nodiscard]] std::int64_t samples() const { return samples_; }

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
  std::int64_t block_, window_;
};

}  // namespace colonnade::images
