// See numpy_random.h.
#include "colonnade/data/numpy_random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace colonnade::data {
namespace {

/// NumPy's SeedSequence of one 32-bit seed: eight words of mixed entropy.
std::array<std::uint32_t, 8> seed_sequence(std::uint32_t seed) {
  std::array<std::uint32_t, 4> pool{};
  std::uint32_t hash = 0x43b0d7e5U;
  const auto scramble = [&hash](std::uint32_t value) {
    value ^= hash;
    hash *= 0x931e8875U;
    value *= hash;
    return value ^ (value >> 16);
  };
  for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = scramble(i == 0 ? seed : 0);
  for (std::size_t from = 0; from < pool.size(); ++from) {
    for (std::size_t to = 0; to < pool.size(); ++to) {
      if (from == to) continue;
      const std::uint32_t mixed = 0xca01f9ddU * pool[to] - 0x4973f715U * scramble(pool[from]);
      pool[to] = mixed ^ (mixed >> 16);
    }
  }
  std::array<std::uint32_t, 8> words{};
  hash = 0x8b51f9ddU;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::uint32_t value = pool[i % pool.size()] ^ hash;
    hash *= 0x58f38dedU;
    value *= hash;
    words[i] = value ^ (value >> 16);
  }
  return words;
}

}  // namespace

// Matsumoto and Nishimura, "Mersenne Twister", 1998, with the seeding of 2002.
Mt19937::Mt19937(std::uint32_t seed) {
  state_[0] = seed;
  for (std::uint32_t i = 1; i < kSize; ++i)
    state_[i] = 1812433253U * (state_[i - 1] ^ state_[i - 1] >> 30) + i;
}

void Mt19937::refill() {
  constexpr std::size_t kShift = 397;
  const auto twist = [](std::uint32_t high, std::uint32_t low) {
    const std::uint32_t joined = (high & 0x80000000U) | (low & 0x7fffffffU);
    return joined >> 1 ^ ((0U - (low & 1U)) & 0x9908b0dfU);
  };
  for (std::size_t i = 0; i < kSize - kShift; ++i)
    state_[i] = state_[i + kShift] ^ twist(state_[i], state_[i + 1]);
  for (std::size_t i = kSize - kShift; i + 1 < kSize; ++i)
    state_[i] = state_[i + kShift - kSize] ^ twist(state_[i], state_[i + 1]);
  state_[kSize - 1] = state_[kShift - 1] ^ twist(state_[kSize - 1], state_[0]);
  for (std::size_t i = 0; i < kSize; ++i) {
    std::uint32_t value = state_[i];
    value ^= value >> 11;
    value ^= value << 7 & 0x9d2c5680U;
    value ^= value << 15 & 0xefc60000U;
    drawn_[i] = value ^ value >> 18;
  }
  next_ = 0;
}

/// Rejection without a branch, which would be unpredictable.
std::size_t RandomState::draw_targets(std::uint64_t max, std::span<std::uint64_t> targets) {
  if (max > std::numeric_limits<std::uint32_t>::max()) {
    targets[0] = bounded(max);
    return 1;
  }
  const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(max);
  const std::size_t count = std::min<std::uint64_t>(targets.size(), max - (mask >> 1));
  for (std::size_t done = 0; done < count;) {
    const std::uint64_t value = draw_() & mask;
    targets[done] = value;
    done += static_cast<std::size_t>(value <= max - done);
  }
  return count;
}

std::uint64_t RandomState::bounded(std::uint64_t max) {
  if (max == 0) return 0;
  const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(max);
  for (;;) {
    std::uint64_t value = draw_();
    if (max > std::numeric_limits<std::uint32_t>::max()) value = (value << 32) | draw_();
    value &= mask;
    if (value <= max) return value;
  }
}

double RandomState::random_sample() {
  const std::uint32_t high = draw_() >> 5;
  const std::uint32_t low = draw_() >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

bool RandomState::bernoulli(double p) {
  if (p == 0) return false;
  // NumPy's inversion counts the rarer outcome. If rounding leaves a remainder after it, the loop draws
  // again.
  const double rare = p <= 0.5 ? p : 1 - p;
  const double often = 1 - rare;
  const double none = std::exp(std::log(often));
  bool happened = false;
  for (double left = random_sample(), share = none; left > share;) {
    if (happened) {
      happened = false;
      share = none;
      left = random_sample();
    } else {
      happened = true;
      left -= share;
      share = rare * share / often;
    }
  }
  return p <= 0.5 ? happened : !happened;
}

std::int64_t RandomState::geometric(double p) {
  return static_cast<std::int64_t>(std::ceil(std::log1p(-random_sample()) / std::log(1 - p)));
}

std::size_t RandomState::choice(std::span<const double> probabilities) {
  std::vector<double> sums(probabilities.size());
  std::partial_sum(probabilities.begin(), probabilities.end(), sums.begin());
  for (double& sum : sums) sum /= sums.back();
  const auto found = std::upper_bound(sums.begin(), sums.end(), random_sample());
  return static_cast<std::size_t>(found - sums.begin());
}

Pcg64::Pcg64(std::uint32_t seed) {
  const auto words = seed_sequence(seed);
  const auto word64 = [&words](std::size_t i) { return (Uint128{words[2 * i + 1]} << 32) | words[2 * i]; };
  increment_ = (((word64(2) << 64) | word64(3)) << 1) | 1;
  next64();
  state_ += (word64(0) << 64) | word64(1);
  next64();
}

std::uint64_t Pcg64::next64() {
  constexpr Uint128 kMultiplier = (Uint128{2549297995355413924ULL} << 64) | 4865540595714422341ULL;
  state_ = state_ * kMultiplier + increment_;
  return std::rotr(static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_),
                   static_cast<int>(state_ >> 122));
}

std::uint32_t Pcg64::next32() {
  if (has_high_half_) {
    has_high_half_ = false;
    return high_half_;
  }
  const std::uint64_t both = next64();
  high_half_ = static_cast<std::uint32_t>(both >> 32);
  has_high_half_ = true;
  return static_cast<std::uint32_t>(both);
}

std::int32_t Pcg64::integers(std::int32_t low, std::int32_t high) {
  const std::uint32_t count = static_cast<std::uint32_t>(high) - static_cast<std::uint32_t>(low);
  const std::uint32_t threshold = (0U - count) % count;
  for (;;) {
    const std::uint64_t product = std::uint64_t{next32()} * count;
    if (static_cast<std::uint32_t>(product) >= threshold)
      return static_cast<std::int32_t>(static_cast<std::uint32_t>(low) +
                                       static_cast<std::uint32_t>(product >> 32));
  }
}

std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 draw(static_cast<std::uint32_t>(seed));
  const bool wide = n >= std::numeric_limits<std::uint32_t>::max() / 20;
  for (std::int64_t i = 0; i + 1 < n; ++i) {
    std::uint64_t value = draw();
    if (wide) value = (value << 32) | draw();
    const auto j = i + static_cast<std::int64_t>(value % static_cast<std::uint64_t>(n - i));
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(j)]);
  }
  return order;
}

}  // namespace colonnade::data
