// See json_scores.h.
#include "colonnade/tokenizers/json_scores.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

#include "colonnade/base/error.h"

namespace colonnade::tokenizers {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr std::int64_t kLargestPower = 308;
constexpr std::int64_t kFarExponent = 1'000'000;  // larger exponents give zero or infinity too

/// 10^0 to 10^308, each rounded to the nearest float64.
const std::array<double, kLargestPower + 1>& powers_of_ten() {
  static const auto powers = [] {
    std::array<double, kLargestPower + 1> all{};
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string text = "1e" + std::to_string(i);
      std::from_chars(text.data(), text.data() + text.size(), all[i]);
    }
    return all;
  }();
  return powers;
}

/// value * 10^exponent, computed as serde_json does.
double scaled(double value, std::int64_t exponent) {
  for (; exponent < -kLargestPower && value != 0; exponent += kLargestPower) value /= 1e308;
  if (value == 0) return value;
  if (exponent > kLargestPower) return std::numeric_limits<double>::infinity();
  const double power = powers_of_ten()[static_cast<std::size_t>(std::abs(exponent))];
  return exponent < 0 ? value / power : value * power;
}

/// Reads a number's characters from the left.
class DigitReader {
 public:
  explicit DigitReader(std::string_view text) : text_(text) {}

  bool eat(char c) {
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  /// Appends digits to `value` while they fit. Calls `held(true)` for each of these, and `held(false)` for
  /// all digits from the first that does not fit.
  template <typename Held>
  void append_to(std::uint64_t& value, Held&& held) {
    bool fits = true;
    for (; !text_.empty() && text_[0] >= '0' && text_[0] <= '9'; text_.remove_prefix(1)) {
      const auto digit = static_cast<std::uint64_t>(text_[0] - '0');
      fits = fits && value <= (std::numeric_limits<std::uint64_t>::max() - digit) / 10;
      if (fits) value = value * 10 + digit;
      held(fits);
    }
  }

 private:
  std::string_view text_;
};

ondemand::value field_named(ondemand::object object, std::string_view name) {
  for (ondemand::field field : object)
    if (std::string_view(field.unescaped_key()) == name) return field.value();
  throw simdjson::simdjson_error(simdjson::NO_SUCH_FIELD);
}

}  // namespace

double serde_json_number(std::string_view number) {
  DigitReader digits(number);
  const bool negative = digits.eat('-');
  std::uint64_t significand = 0;
  std::int64_t exponent = 0;
  digits.append_to(significand, [&](bool held) { exponent += held ? 0 : 1; });
  if (digits.eat('.')) digits.append_to(significand, [&](bool held) { exponent -= held ? 1 : 0; });
  if (digits.eat('e') || digits.eat('E')) {
    const bool below_one = digits.eat('-');
    if (!below_one) digits.eat('+');
    std::uint64_t own = 0;
    digits.append_to(own, [](bool) {});
    const auto most = static_cast<std::int64_t>(std::min<std::uint64_t>(own, kFarExponent));
    exponent += below_one ? -most : most;
  }
  const double value = scaled(static_cast<double>(significand), exponent);
  return negative ? -value : value;
}

std::vector<double> unigram_scores(const std::string& text, const std::string& where) {
  std::vector<double> scores;
  try {
    ondemand::parser parser(std::size_t{1} << 30);
    const simdjson::padded_string padded(text);
    ondemand::document document = parser.iterate(padded);
    const ondemand::value vocab = field_named(field_named(document.get_object(), "model"), "vocab");
    for (ondemand::array token : ondemand::value(vocab).get_array()) {
      std::size_t index = 0;
      for (ondemand::value part : token) {
        if (index++ != 1) continue;
        if (part.type() != ondemand::json_type::number)
          throw simdjson::simdjson_error(simdjson::NUMBER_ERROR);
        scores.push_back(serde_json_number(part.raw_json_token()));
      }
      if (index != 2) throw simdjson::simdjson_error(simdjson::INCORRECT_TYPE);
    }
  } catch (const simdjson::simdjson_error& error) {
    throw DataError(
        fmt::format("{} must be tokens and their scores; got {}; fix the file", where, error.what()));
  }
  return scores;
}

}  // namespace colonnade::tokenizers
