// Layouts as Megatron's lists of names: a list for each stage, in Python's words.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "colonnade/base/error.h"
#include "colonnade/layout/layout_string.h"

namespace colonnade::layout {
namespace {

constexpr std::size_t kMaxLetters = 1'000'000;

/// A name, a list of names or a list of these.
struct Value {
  int depth = 0;
  std::vector<std::string> stages;  ///< letters; one where depth is below 2

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
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::optional<Value> whole() {
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

  /// Of equal depth.
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
    std::optional<Value> made;
    while (!take(']')) {
      if (made && !take(',')) return std::nullopt;
      if (take(']')) break;
      std::optional<Value> one = sum();
      if (!one || (made && one->depth + 1 != made->depth)) return std::nullopt;
      ++one->depth;
      if (made)
        append(*made, *one);
      else
        made = one;
    }
    --depth_;
    return made ? made : Value{depth_ == 0 ? 2 : 1, {""}};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string letters_of_lists(std::string_view text) {
  const std::optional<Value> value = Reader(text).whole();
  if (!value)
    throw ConfigError(fmt::format(
        "--pipeline-model-parallel-layout: a list must hold a list for each stage, of the names embedding, "
        "encoder, decoder, mtp and loss; got '{}'; write [[\"embedding\",\"decoder\"],[\"decoder\",\"loss\"]]",
        text));
  return fmt::format("{}", fmt::join(value->stages, "|"));
}

}  // namespace colonnade::layout
