// How a data set is divided into training, validation and test parts: --split.
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

/// A part of the whole, 0 <= begin < end <= 1 (the last end may miss 1 by rounding, as Megatron's does).
struct Fraction {
  double begin = 0;
  double end = 1;
};
using SplitFractions = std::array<std::optional<Fraction>, 3>;

/// Reads "969, 30, 1" (config::read_split), fills up with zeros to three, divides by the sum. A part of
/// width zero is empty. Throws ConfigError for anything else than one to three numbers >= 0.
SplitFractions parse_split(std::string_view text);

/// Sequences [begin, end) of `count`: both ends are rounded to the nearest, halves to even.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};
Range range_of(const Fraction& fraction, std::int64_t count);

/// numpy.sum of doubles: eight partial sums, and halves above 128 values.
double numpy_sum(std::span<const double> values);

/// values / numpy_sum(values).
std::vector<double> normalize(std::span<const double> values);

}  // namespace colonnade::data
