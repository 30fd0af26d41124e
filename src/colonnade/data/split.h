// Training, validation and test splits of a data set: --split.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace colonnade::data {

enum class Split { kTrain, kValid, kTest };
inline constexpr std::array<const char*, 3> kSplitNames{"train", "valid", "test"};

/// Bounds of a split, 0 <= begin < end <= 1. The last end may miss 1 by rounding, as in Megatron.
struct Fraction {
  double begin = 0;
  double end = 1;
};
using SplitFractions = std::array<std::optional<Fraction>, 3>;

/// Parses "969, 30, 1" (config::parse_split), padded with zeros to three splits and divided by the sum. A
/// split of width zero is empty. Throws ConfigError for anything but one to three numbers >= 0.
SplitFractions parse_split(std::string_view text);

/// Half-open range, for example of sequences.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};
/// The range of `fraction` out of `count`; bounds are rounded to the nearest integer, halves to even.
Range range_of(const Fraction& fraction, std::int64_t count);

/// numpy.sum of doubles, bitwise: eight partial sums, and pairwise halves above 128 values.
double numpy_sum(std::span<const double> values);

/// values / numpy_sum(values).
std::vector<double> normalize(std::span<const double> values);

}  // namespace colonnade::data
