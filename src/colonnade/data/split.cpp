// See split.h.
#include "colonnade/data/split.h"

#include <cmath>

#include "colonnade/base/error.h"
#include "colonnade/config/data_flags.h"

namespace colonnade::data {

SplitFractions parse_split(std::string_view text) {
  config::SplitWeights words = config::parse_split(text);
  if (!words.fault.empty())
    throw ConfigError(
        fmt::format("--split must be one to three numbers >= 0 whose sum is above 0; got '{}' ({}); "
                    "write for example --split 969,30,1",
                    text, words.fault));
  std::vector<double>& parts = words.parts;
  parts.resize(3, 0.0);
  SplitFractions split;
  double begin = 0;
  const std::vector<double> widths = normalize(parts);
  for (std::size_t i = 0; i < split.size(); ++i) {
    const double end = begin + widths[i];
    if (end > begin) split[i] = Fraction{begin, end};
    begin = end;
  }
  return split;
}

Range range_of(const Fraction& fraction, std::int64_t count) {
  const auto round = [count](double x) {
    return static_cast<std::int64_t>(std::nearbyint(x * static_cast<double>(count)));
  };
  return {round(fraction.begin), round(fraction.end)};
}

double numpy_sum(std::span<const double> values) {
  const std::size_t n = values.size();
  if (n < 8) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  }
  if (n > 128) {
    const std::size_t half = n / 2 - n / 2 % 8;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  std::array<double, 8> r{};
  for (std::size_t i = 0; i < 8; ++i) r[i] = values[i];
  std::size_t i = 8;
  for (; i + 8 <= n; i += 8)
    for (std::size_t k = 0; k < 8; ++k) r[k] += values[i + k];
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) sum += values[i];
  return sum;
}

std::vector<double> normalize(std::span<const double> values) {
  const double sum = numpy_sum(values);
  std::vector<double> result(values.begin(), values.end());
  for (double& value : result) value /= sum;
  return result;
}

}  // namespace colonnade::data
