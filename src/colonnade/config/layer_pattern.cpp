// See layer_pattern.h. Grammar: sum = product {+ product}; product = factor {* factor};
// factor = number | [sum {, sum}] | (sum). A number times a list repeats it.
#include "colonnade/config/layer_pattern.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace colonnade::config {
namespace {

constexpr std::size_t kMaxLength = 1'000'000;
constexpr int kMaxDepth = 100;

/// A list, or a number if `is_list` is false.
struct Value {
  bool is_list = false;
  std::int64_t number = 0;
  std::vector<std::int64_t> numbers;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::optional<Value> whole() {
    std::optional<Value> value = sum();
    if (at_end() || !value || value->is_list) return at_end() ? std::move(value) : std::nullopt;
    at_ = depth_ = 0;  // a YAML list arrives without brackets: 0,1,1
    return items('\0');
  }

 private:
  bool at_end() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ == text_.size();
  }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::optional<Value> sum() {
    if (++depth_ > kMaxDepth) return std::nullopt;
    std::optional<Value> left = product();
    while (left && take('+')) {
      const std::optional<Value> right = product();
      if (!right || right->is_list != left->is_list ||
          left->numbers.size() + right->numbers.size() > kMaxLength)
        return std::nullopt;
      if (left->is_list)
        left->numbers.insert(left->numbers.end(), right->numbers.begin(), right->numbers.end());
      else if (__builtin_add_overflow(left->number, right->number, &left->number))
        return std::nullopt;
    }
    --depth_;
    return left;
  }

  std::optional<Value> product() {
    std::optional<Value> left = factor();
    while (left && take('*')) {
      std::optional<Value> right = factor();
      if (!right || (left->is_list && right->is_list)) return std::nullopt;
      if (right->is_list) std::swap(left, right);
      if (!(left->is_list ? repeat(left->numbers, right->number)
                          : !__builtin_mul_overflow(left->number, right->number, &left->number)))
        return std::nullopt;
    }
    return left;
  }

  static bool repeat(std::vector<std::int64_t>& numbers, std::int64_t count) {
    const std::size_t size = numbers.size();
    if (size == 0) return true;
    if (count > static_cast<std::int64_t>(kMaxLength / size)) return false;
    numbers.resize(size * static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
    for (std::size_t i = size; i < numbers.size(); ++i) numbers[i] = numbers[i - size];
    return true;
  }

  std::optional<Value> factor() {
    if (take('(')) {
      std::optional<Value> inner = sum();
      return take(')') ? std::move(inner) : std::nullopt;
    }
    if (take('[')) return items(']');
    std::int64_t number = 0;
    const char* begin = text_.data() + (at_end() ? text_.size() : at_);
    const auto [end, status] = std::from_chars(begin, text_.data() + text_.size(), number);
    if (status != std::errc()) return std::nullopt;
    at_ += static_cast<std::size_t>(end - begin);
    return Value{.is_list = false, .number = number, .numbers = {}};
  }

  /// Parses list items up to `close`; \0 means the end of the text.
  std::optional<Value> items(char close) {
    const auto closes = [&] { return close == '\0' ? at_end() : take(close); };
    Value made{.is_list = true, .number = 0, .numbers = {}};
    while (!closes()) {
      if (!made.numbers.empty() && !take(',')) return std::nullopt;
      if (closes()) break;  // [1, 0,]
      const std::optional<Value> item = sum();
      if (!item || item->is_list || made.numbers.size() == kMaxLength) return std::nullopt;
      made.numbers.push_back(item->number);
    }
    return made;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<std::vector<std::int64_t>> parse_int_list(std::string_view text) {
  const std::optional<Value> value = Reader(text).whole();
  if (!value || !value->is_list) return std::nullopt;
  return value->numbers;
}

namespace {

/// Mask from a list of 0 and 1, or by `number(layer, step)`.
template <typename ByNumber>
std::optional<std::vector<bool>> layers_by(std::string_view text, std::int64_t layers,
                                           const ByNumber& number) {
  std::vector<bool> mask(static_cast<std::size_t>(std::max<std::int64_t>(layers, 0)));
  const std::optional<Value> value = Reader(text).whole();
  if (!value) return std::nullopt;
  if (!value->is_list) {
    const std::int64_t step = value->number;
    if (step < 1) return std::nullopt;
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = number(static_cast<std::int64_t>(i), step);
    return mask;
  }
  if (value->numbers.size() != mask.size()) return std::nullopt;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (value->numbers[i] != 0 && value->numbers[i] != 1) return std::nullopt;
    mask[i] = value->numbers[i] == 1;
  }
  return mask;
}

}  // namespace

std::optional<std::vector<bool>> expand_layer_freq(std::string_view text, std::int64_t layers) {
  return layers_by(text, layers, [](std::int64_t i, std::int64_t step) { return i % step == 0; });
}

std::optional<std::vector<bool>> expand_skip_freq(std::string_view text, std::int64_t layers) {
  return layers_by(text, layers, [](std::int64_t i, std::int64_t step) { return (i + 1) % step != 0; });
}

std::optional<std::vector<bool>> expand_no_rope_freq(std::string_view text, std::int64_t layers) {
  auto mask = layers_by(text, layers, [](std::int64_t i, std::int64_t step) { return (i + 1) % step == 0; });
  if (const auto value = Reader(text).whole(); value && !value->is_list && layers % value->number != 0)
    return std::nullopt;
  if (mask) mask->flip();
  return mask;
}

std::optional<std::vector<double>> parse_numbers(std::string_view text) {
  if (text.size() < 3 || text.front() != '[' || text.back() != ']') return std::nullopt;
  const char *at = text.data() + 1, *const end = text.data() + text.size() - 1;
  const auto skip_spaces = [&] {
    while (at < end && *at == ' ') ++at;
  };
  std::vector<double> numbers;
  for (;; ++at) {  // after a comma
    skip_spaces();
    const auto [next, error] = std::from_chars(at, end, numbers.emplace_back());
    if (error != std::errc{} || !std::isfinite(numbers.back())) return std::nullopt;
    at = next;
    skip_spaces();
    if (at == end) return numbers;
    if (*at != ',') return std::nullopt;
  }
}

}  // namespace colonnade::config
