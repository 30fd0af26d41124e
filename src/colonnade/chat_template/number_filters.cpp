// See library.h: Jinja's and Python's filters of numbers.
#include <unicode/uchar.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "colonnade/chat_template/filters.h"
#include "colonnade/chat_template/text_methods.h"
#include "colonnade/tokenizers/unicode.h"

namespace colonnade::chat_template {
namespace {

constexpr double kBeyondIntegers = 9223372036854775808.0;

/// The text with decimal digits of any script as ASCII digits, as Python's int() reads them.
std::string with_ascii_digits(std::string_view text) {
  std::string result;
  tokenizers::for_each_char(text, [&](char32_t c, std::string_view bytes) {
    const int digit = u_charDigitValue(static_cast<UChar32>(c));
    if (digit >= 0)
      result.push_back(static_cast<char>('0' + digit));
    else
      result += bytes;
  });
  return result;
}

/// float(text), which may be infinite; nullopt if it is not a number.
std::optional<double> parse_float(std::string_view text, Arguments& a, const Value& value) {
  const bool has_sign = text.starts_with('+') || text.starts_with('-');
  const std::string_view digits = text.substr(has_sign ? 1 : 0);
  if (digits.empty() || digits.find_first_of("0123456789") == std::string_view::npos) {
    const std::string low = cased(digits, Case::kLower);
    if (low == "nan") return std::nan("");
    if (low != "inf" && low != "infinity") return std::nullopt;
    return text[0] == '-' ? -HUGE_VAL : HUGE_VAL;
  }
  if (digits.find('_') != std::string_view::npos)
    a.fail("text that is converted to a number must not contain _", value);
  double number = 0;
  if (digits[0] != '.' && (digits[0] < '0' || digits[0] > '9')) return std::nullopt;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (end != digits.data() + digits.size()) return std::nullopt;
  if (error != std::errc()) a.fail("text that is converted to a number must fit a float", value);
  return text[0] == '-' ? -number : number;
}

/// int(number)
Value truncated(double number, Arguments& a, const Value& value) {
  if (!(number >= -kBeyondIntegers && number < kBeyondIntegers)) a.fail("integers must fit 64 bits", value);
  return Value::integer(static_cast<std::int64_t>(number));
}

Value to_integer(const Value& value, Arguments& a) {
  const Value* given = a.get(0, "default");
  const Value instead = given != nullptr ? *given : Value::integer(0);
  if (value.is_undefined()) a.fail("the value must be defined", value);
  if (value.is_integer()) return Value::integer(value.integer());
  if (const double* real = value.as<double>()) return truncated(*real, a, value);
  if (value.text() == nullptr) return instead;
  const std::string text = with_ascii_digits(stripped(*value.text(), nullptr, true, true));
  const bool plus = text.starts_with('+') && !text.starts_with("+-");
  const std::string_view digits = std::string_view(text).substr(plus ? 1 : 0);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (!digits.empty() && end == digits.data() + digits.size()) {
    if (error != std::errc()) a.fail("integers must fit 64 bits", value);
    return Value::integer(number);
  }
  const std::optional<double> real = parse_float(text, a, value);
  return real && std::isfinite(*real) ? truncated(*real, a, value) : instead;
}

Value to_real(const Value& value, Arguments& a) {
  const Value* instead = a.get(0, "default");
  if (value.is_undefined()) a.fail("the value must be defined", value);
  if (value.is_number()) return {value.number()};
  if (value.text() != nullptr) {
    const std::string text = with_ascii_digits(stripped(*value.text(), nullptr, true, true));
    if (const std::optional<double> real = parse_float(text, a, value)) {
      if (!std::isfinite(*real)) a.fail("a float must be finite here", value);
      return {*real};
    }
  }
  return instead != nullptr ? *instead : Value(0.0);
}

Value absolute(const Value& value, Arguments& a) {
  if (const double* real = value.as<double>()) return {std::fabs(*real)};
  if (!value.is_integer() || value.integer() == INT64_MIN) a.fail("it must be a number of 64 bits", value);
  return Value::integer(std::abs(value.integer()));
}

/// round(number, digits): rounds half to even.
double rounded(double number, int digits) {
  std::array<char, 1024> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed, digits);
  double result = 0;
  std::from_chars(text.data(), end.ptr, result);
  return result;
}

Value round(const Value& value, Arguments& a) {
  constexpr std::int64_t kMaxDigits = 22;  // powers of ten are exact up to 10^22
  const std::int64_t digits = a.integer(0, "precision", 0);
  const std::string method = a.text(1, "method", "common");
  if (digits < 0 || digits > kMaxDigits)
    a.budget.fail(fmt::format("round: precision must be from 0 to {} here", kMaxDigits),
                  fmt::format("{}", digits), "fix the template");
  if (!value.is_number() || !std::isfinite(value.number())) a.fail("it must be a finite number", value);
  if (method == "common" && value.is_integer()) return Value::integer(value.integer());
  if (method == "common") return {rounded(value.number(), static_cast<int>(digits))};
  if (method != "ceil" && method != "floor")
    a.budget.fail("round: method must be common, ceil or floor", fmt::format("'{}'", method), "fix it");
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const double power = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value.number() * power;
  const bool is_exact = !value.is_integer() || digits == 0 || std::fabs(scaled) < kExact;
  if (!std::isfinite(scaled) || !is_exact) a.fail("the value times 10^precision must be below 2^53", value);
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return {(whole == 0 ? 0.0 : whole) / power};
}

/// Sums floats in two ways: plainly as Python up to 3.11 does, and with compensation as later versions do.
class FloatSum {
 public:
  void add(double number) {
    const double next = plain_ + number;
    const double sum = sum_ + number;
    compensation_ += std::fabs(sum_) >= std::fabs(number) ? (sum_ - sum) + number : (number - sum) + sum_;
    sum_ = sum;
    plain_ = next;
  }
  [[nodiscard]] bool is_same() const { return plain_ == sum_ + compensation_; }

 private:
  double plain_ = 0, sum_ = 0, compensation_ = 0;
};

Value sum(const Value& value, Arguments& a) {
  const Value* path = a.get(0, "attribute");
  const Value* start = a.get(1, "start");
  Value total = start != nullptr ? *start : Value::integer(0);
  if (total.text() != nullptr) a.fail("start must not be a string", total);
  FloatSum float_sum;
  bool has_floats = false;
  const auto observe = [&](const Value& each) {
    has_floats = has_floats || each.as<double>() != nullptr;
    if (each.is_number()) float_sum.add(each.number());
  };
  observe(total);
  for (const Value& each : items_of(value, a.budget)) {
    const Value number = path != nullptr ? named_attribute(each, *path, a) : each;
    observe(number);
    total = binary("+", total, number, a.budget);
  }
  if (has_floats && !float_sum.is_same())
    a.budget.fail("a sum of floats must be the same in all versions of Python", "one that is not",
                  "add them one by one");
  return total;
}

}  // namespace

const Filters& number_filters() {
  static const Filters kAll = {
      {"int", to_integer}, {"float", to_real}, {"abs", absolute}, {"round", round}, {"sum", sum}};
  return kAll;
}

}  // namespace colonnade::chat_template
