// See shard_order.h.
#include "colonnade/images/shard_order.h"

#include <algorithm>
#include <bit>

#include "colonnade/base/error.h"
#include "colonnade/base/philox.h"

namespace colonnade::images {
namespace {

constexpr int kRounds = 6;
// Philox streams of an epoch; windows use streams from 2 on.
constexpr std::uint64_t kRotation = 0, kBlocks = 1, kWindows = 2;

std::uint64_t key_of(std::uint64_t seed, std::uint64_t epoch) {
  const auto words = Philox{seed ^ stable_hash("order of shards")}(epoch);
  return (std::uint64_t{words[0]} << 32U) | words[1];
}

}  // namespace

Permutation::Permutation(std::uint64_t key, std::uint64_t stream, std::int64_t size)
    : key_(key),
      stream_(stream),
      size_(static_cast<std::uint64_t>(size)),
      half_bits_(static_cast<int>(std::bit_width(std::max<std::uint64_t>(size_, 2) - 1) + 1) / 2) {}

std::int64_t Permutation::operator()(std::int64_t i) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const auto words = Philox{key_ + stream_ * 0x9E3779B97F4A7C15U}(
          right, stream_ * kRounds + static_cast<std::uint64_t>(round));
      const std::uint64_t mixed = left ^ (((std::uint64_t{words[0]} << 32U) | words[1]) & mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits_) | right;
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

ShardOrder::ShardOrder(std::int64_t samples, std::uint64_t seed, std::int64_t block, std::int64_t window)
    : samples_(samples), seed_(seed), block_(block), window_(window) {
  if (samples < 1 || block < 1 || window < 1)
    throw ConfigError(fmt::format(
        "order of shards: samples, samples per block and blocks per window must be above 0; got {}, {} and {}; name "
        "shards that hold samples",
        samples, block, window));
  block_ = std::min(block, samples);
  window_ = std::min(window, samples / block_ + 1);
}

std::int64_t ShardOrder::operator()(std::int64_t n) const {
  const std::uint64_t key = key_of(seed_, static_cast<std::uint64_t>(n / samples_));
  const std::int64_t position = n % samples_;
  const std::int64_t window = position / (block_ * window_), begin = window * block_ * window_;
  const std::int64_t length = std::min(block_ * window_, samples_ - begin);
  const std::int64_t in_blocks =
      begin + Permutation(key, kWindows + static_cast<std::uint64_t>(window), length)(position - begin);
  const std::int64_t full_blocks = samples_ / block_, block = in_blocks / block_;
  const std::int64_t from = block < full_blocks ? Permutation(key, kBlocks, full_blocks)(block) : block;
  const auto words = Philox{key}(kRotation);
  const auto rotation =
      static_cast<std::int64_t>((std::uint64_t{words[0]} << 31U) | (words[1] >> 1U)) % samples_;
  return (from * block_ + in_blocks % block_ + rotation) % samples_;
}

}  // namespace colonnade::images
