// Order of the samples in shards: random, yet local.
#pragma once

#include <cstdint>

namespace colonnade::images {

/// A permutation of 0 .. size-1 as a function without memory: a Feistel network over Philox with cycle
/// walking for values beyond size. Source: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
/// 2002.
class Permutation {
 public:
  Permutation(std::uint64_t key, std::uint64_t stream, std::int64_t size);
  /// Precondition, unchecked: 0 <= i < size.
  [[nodiscard]] std::int64_t operator()(std::int64_t i) const;

 private:
  std::uint64_t key_, stream_, size_;
  int half_bits_;
};

/// The endless order of a run over `samples` samples as a function of (seed, number), without other state: a
/// run resumes from its number of samples with any number of ranks and threads.
///
/// Number n is position p = n % samples of epoch e = n / samples, in which each sample occurs once:
/// 1. The samples in shard order, rotated by r(seed, e), are divided into blocks of `block`; the last one may
/// be shorter.
///    The blocks are permuted by P(seed, e), except a shorter one, which stays last.
/// 2. The result is divided into windows of `block` * `window` positions, each permuted by Q(seed, e, w). So
/// the
///    positions of a window read from `window` spans of the shards: the window is the shuffle buffer, in the
///    page cache instead of in memory.
class ShardOrder {
 public:
  /// Throws ConfigError unless samples, block and window are positive.
  ShardOrder(std::int64_t samples, std::uint64_t seed, std::int64_t block, std::int64_t window);
  /// Index of the sample with number n >= 0.
  [[nodiscard]] std::int64_t operator()(std::int64_t n) const;
  [[nodiscard]] std::int64_t samples() const { return samples_; }

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
  std::int64_t block_, window_;
};

}  // namespace colonnade::images
