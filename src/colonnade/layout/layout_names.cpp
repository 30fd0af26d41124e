// Parser of Megatron's Python lists of layer names, one list per stage.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "colonnade/base/error.h"
#include "colonnade/layout/layout_string.h"

namespace colonnade::layout {
namespace {

constexpr std::size_t kMaxLetters = 1'000'000;

/// Name, list of names, or list of lists.
struct Value {
  int depth = 0;
  std::vector<std::string> stages;  ///< letters; one entry for a depth below 2

  [[nodiscard]] std::size_t letters() const {
    std::size_t all = stages.size();
    for (const std::string& stage : stages) all += stage.size();
    return all;
  }
};

std::optional<char> letter_of(std::string_view name) {
  constexpr std::pair<std::string_view, char> kNames[] = {
      {"embedding", 'E'}, {"encoder", 'e'}, {"decoder", 't'}, {"mtp", 'm'}, {"loss", 'L'}};
  for (const auto& [known, letter] : kNames)
    if (name == known) return letter;
  return std::nullopt;
}

/// sum = product {+ product}; product = item {* number}; item = name | "name" | [ sum {, sum} ].
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<Value> parse() {
    std::optional<Value> value = sum();
    return value && at_ == text_.size() && value->depth == 2 ? value : std::nullopt;
  }

 private:
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::optional<Value> sum() {
    std::optional<Value> left = product();
    while (left && take('+')) {
      const std::optional<Value> right = product();
      if (!right || right->depth != left->depth || left->depth == 0) return std::nullopt;
      append(*left, *right);
    }
    return left;
  }

  std::optional<Value> product() {
    std::optional<Value> value = item();
    while (value && take('*')) {
      std::size_t times = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), times);
      if (error != std::errc() || value->depth == 0 || times > kMaxLetters / value->letters())
        return std::nullopt;
      at_ = static_cast<std::size_t>(end - text_.data());
      Value repeated{value->depth, {}};
      if (value->depth == 1) repeated.stages = {""};
      for (std::size_t i = 0; i < times; ++i) append(repeated, *value);
      value = repeated;
    }
    return value;
  }

  /// Appends a value of the same depth.
  static void append(Value& to, const Value& more) {
    if (to.depth == 1)
      to.stages[0] += more.stages[0];
    else
      to.stages.insert(to.stages.end(), more.stages.begin(), more.stages.end());
  }

  std::optional<Value> item() {
    if (take('[')) return list();
    const bool quoted = take('"') || take('\'');
    const std::size_t end = std::min(text_.find_first_of("\"'[],+*", at_), text_.size());
    const std::optional<char> letter = letter_of(text_.substr(at_, end - at_));
    at_ = end;
    if (!letter || (quoted && !take('"') && !take('\''))) return std::nullopt;
    return Value{0, {std::string(1, *letter)}};
  }

  std::optional<Value> list() {
    if (++depth_ > 2) return std::nullopt;
    std::optional<Value> result;
    while (!take(']')) {
      if (result && !take(',')) return std::nullopt;
      if (take(']')) break;
      std::optional<Value> element = sum();
      if (!element || (result && element->depth + 1 != result->depth)) return std::nullopt;
      ++element->depth;
      if (result)
        append(*result, *element);
      else
        result = element;
    }
    --depth_;
    return result ? result : Value{depth_ == 0 ? 2 : 1, {""}};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string letters_from_lists(std::string_view text) {
  const std::optional<Value> value = Parser(text).parse();
  if (!value)
    throw ConfigError(fmt::format(
        "--pipeline-model-parallel-layout must have one list per stage of the names embedding, encoder, "
        "decoder, mtp and loss; got '{}'; write [[\"embedding\",\"decoder\"],[\"decoder\",\"loss\"]]",
        text));
  return fmt::format("{}", fmt::join(value->stages, "|"));
}

}  // namespace colonnade::layout
