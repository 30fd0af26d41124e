// See layer_pattern.h. Grammar: sum = product {+ product}; product = factor {* factor};
// factor = number | [sum {, sum}] | (sum). A number times a list repeats it.
#include "colonnade/config/layer_pattern.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>

namespace colonnade::config {
namespace {

constexpr std::size_t kLongest = 1'000'000;
constexpr int kDeepest = 100;

/// A list, or a number where `list` is false.
struct Value {
  bool list = false;
  std::vector<std::int64_t> numbers;
};

class Reader {
 public:
  explicit Reader(std::string_view text) {
    std::ranges::copy_if(text, std::back_inserter(text_), [](char c) { return c != ' '; });
  }

  std::optional<Value> whole() {
    std::optional<Value> value = sum();
    if (at_ == text_.size() || !value || value->list) return at_ == text_.size() ? value : std::nullopt;
    *this = Reader("[" + text_ + "]");  // a list of YAML comes without its brackets: 0,1,1
    value = factor();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::optional<Value> sum() {
    if (++depth_ > kDeepest) return std::nullopt;
    std::optional<Value> left = product();
    while (left && take('+')) {
      const std::optional<Value> right = product();
      if (!right || right->list != left->list || left->numbers.size() + right->numbers.size() > kLongest)
        return std::nullopt;
      if (left->list)
        left->numbers.insert(left->numbers.end(), right->numbers.begin(), right->numbers.end());
      else if (__builtin_add_overflow(left->numbers[0], right->numbers[0], &left->numbers[0]))
        return std::nullopt;
    }
    --depth_;
    return left;
  }

  std::optional<Value> product() {
    std::optional<Value> left = factor();
    while (left && take('*')) {
      const std::optional<Value> right = factor();
      if (!right || (left->list && right->list)) return std::nullopt;
      left = times(*left, *right);
    }
    return left;
  }

  static std::optional<Value> times(const Value& a, const Value& b) {
    if (!a.list && !b.list) {
      Value product = a;
      if (__builtin_mul_overflow(a.numbers[0], b.numbers[0], &product.numbers[0])) return std::nullopt;
      return product;
    }
    const Value& list = a.list ? a : b;
    const std::int64_t count = std::max<std::int64_t>((a.list ? b : a).numbers[0], 0);
    if (!list.numbers.empty() && count > static_cast<std::int64_t>(kLongest / list.numbers.size()))
      return std::nullopt;
    Value repeated{.list = true, .numbers = {}};
    for (std::int64_t i = 0; i < count && !list.numbers.empty(); ++i)
      repeated.numbers.insert(repeated.numbers.end(), list.numbers.begin(), list.numbers.end());
    return repeated;
  }

  std::optional<Value> factor() {
    if (take('(')) {
      std::optional<Value> inner = sum();
      return take(')') ? inner : std::nullopt;
    }
    if (take('[')) return list();
    std::int64_t number = 0;
    const char* begin = text_.data() + at_;
    const auto [end, status] = std::from_chars(begin, text_.data() + text_.size(), number);
    if (status != std::errc()) return std::nullopt;
    at_ += static_cast<std::size_t>(end - begin);
    return Value{.list = false, .numbers = {number}};
  }

  std::optional<Value> list() {
    Value made{.list = true, .numbers = {}};
    while (!take(']')) {
      if (!made.numbers.empty() && !take(',')) return std::nullopt;
      if (take(']')) break;  // [1, 0,]
      const std::optional<Value> item = sum();
      if (!item || item->list || made.numbers.size() == kLongest) return std::nullopt;
      made.numbers.push_back(item->numbers[0]);
    }
    return made;
  }

  std::string text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<std::vector<std::int64_t>> read_list(std::string_view text) {
  const std::optional<Value> value = Reader(text).whole();
  if (!value || !value->list) return std::nullopt;
  return value->numbers;
}

namespace {

/// A list of 0 and 1, or by `number(layer, step)`.
template <typename ByNumber>
std::optional<std::vector<bool>> layers_by(std::string_view text, std::int64_t layers,
                                           const ByNumber& number) {
  std::vector<bool> kind(static_cast<std::size_t>(std::max<std::int64_t>(layers, 0)));
  const std::optional<Value> value = Reader(text).whole();
  if (!value) return std::nullopt;
  if (!value->list) {
    const std::int64_t step = value->numbers[0];
    if (step < 1) return std::nullopt;
    for (std::size_t i = 0; i < kind.size(); ++i) kind[i] = number(static_cast<std::int64_t>(i), step);
    return kind;
  }
  if (value->numbers.size() != kind.size()) return std::nullopt;
  for (std::size_t i = 0; i < kind.size(); ++i) {
    if (value->numbers[i] != 0 && value->numbers[i] != 1) return std::nullopt;
    kind[i] = value->numbers[i] == 1;
  }
  return kind;
}

}  // namespace

std::optional<std::vector<bool>> layers_of_kind(std::string_view text, std::int64_t layers) {
  return layers_by(text, layers, [](std::int64_t i, std::int64_t step) { return i % step == 0; });
}

std::optional<std::vector<bool>> layers_but_each(std::string_view text, std::int64_t layers) {
  return layers_by(text, layers, [](std::int64_t i, std::int64_t step) { return (i + 1) % step != 0; });
}

}  // namespace colonnade::config
