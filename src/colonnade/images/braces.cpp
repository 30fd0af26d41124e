// See braces.h. A pattern is parsed into a tree and counted before it is expanded.
#include "colonnade/images/braces.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "colonnade/base/error.h"

namespace colonnade::images {
namespace {

constexpr std::size_t kLongestPattern = 4096;
constexpr int kDeepestBrace = 16;

struct BracePart;
/// Concatenated parts.
using BraceParts = std::vector<BracePart>;

/// {from..to}, each word padded with zeros to `width`.
struct BraceRange {
  std::int64_t from = 0, to = 0;
  std::size_t width = 0;
  [[nodiscard]] std::int64_t count() const { return std::abs(to - from) + 1; }
};

/// A literal text, a range, or alternatives.
struct BracePart {
  std::string text = {};
  std::optional<BraceRange> range = {};
  std::vector<BraceParts> choices = {};
};

/// Number of words and their total bytes, as doubles because they may exceed any integer type.
struct BraceSize {
  double words = 1, bytes = 0;
};

std::optional<BraceRange> range_of(std::string_view inside) {
  const std::size_t dots = inside.find("..");
  if (dots == std::string_view::npos) return {};
  const std::string_view first = inside.substr(0, dots), last = inside.substr(dots + 2);
  const auto read = [](std::string_view text, std::int64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return !text.empty() && text.size() <= 15 && error == std::errc() && end == text.data() + text.size() &&
           value >= 0;
  };
  BraceRange range;
  if (!read(first, range.from) || !read(last, range.to)) return {};
  if ((first.size() > 1 && first[0] == '0') || (last.size() > 1 && last[0] == '0'))
    range.width = std::max(first.size(), last.size());
  return range;
}

/// Position of the bracket that closes the one at `open`.
std::size_t closing_bracket(std::string_view pattern, std::size_t open) {
  int depth = 0;
  for (std::size_t at = open; at < pattern.size() && depth <= kDeepestBrace; ++at) {
    depth += pattern[at] == '{' ? 1 : pattern[at] == '}' ? -1 : 0;
    if (depth == 0) return at;
  }
  throw ConfigError(fmt::format(
      "'{}': each {{ must have its }}, at most {} deep; got unbalanced ones; write e.g. shard-{{000..010}}.tar",
      pattern, kDeepestBrace));
}

BraceParts parts_of(std::string_view pattern);

/// The alternatives A,B,C, split at commas outside of inner brackets.
std::vector<BraceParts> choices_of(std::string_view inside) {
  std::vector<BraceParts> found;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= inside.size(); ++at) {
    if (at == inside.size() || (inside[at] == ',' && depth == 0)) {
      found.push_back(parts_of(inside.substr(begin, at - begin)));
      begin = at + 1;
    } else {
      depth += inside[at] == '{' ? 1 : inside[at] == '}' ? -1 : 0;
    }
  }
  return found;
}

BraceParts parts_of(std::string_view pattern) {
  BraceParts parts;
  for (std::size_t at = 0; at < pattern.size();) {
    const std::size_t open = std::min(pattern.find('{', at), pattern.size());
    if (open > at) parts.push_back({.text = std::string(pattern.substr(at, open - at))});
    if (open == pattern.size()) break;
    const std::size_t close = closing_bracket(pattern, open);
    const std::string_view inside = pattern.substr(open + 1, close - open - 1);
    BracePart part{.range = range_of(inside)};
    if (!part.range) part.choices = choices_of(inside);
    parts.push_back(std::move(part));
    at = close + 1;
  }
  return parts;
}

BraceSize size_of(const BraceParts& parts) {
  BraceSize all;
  for (const BracePart& part : parts) {
    BraceSize size{1, static_cast<double>(part.text.size())};
    if (part.range) {
      const auto longest = fmt::format("{}", std::max(part.range->from, part.range->to)).size();
      size.words = static_cast<double>(part.range->count());
      size.bytes = size.words * static_cast<double>(std::max(part.range->width, longest));
    } else if (!part.choices.empty()) {
      size = {0, 0};
      for (const BraceParts& choice : part.choices) {
        const BraceSize more = size_of(choice);
        size = {size.words + more.words, size.bytes + more.bytes};
      }
    }
    all = {all.words * size.words, all.bytes * size.words + size.bytes * all.words};
  }
  return all;
}

std::vector<std::string> words_of(const BraceParts& parts);

std::vector<std::string> words_of(const BracePart& part) {
  std::vector<std::string> words;
  if (part.range) {
    const std::int64_t step = part.range->from <= part.range->to ? 1 : -1;
    for (std::int64_t i = 0; i < part.range->count(); ++i)
      words.push_back(fmt::format("{:0{}}", part.range->from + step * i, part.range->width));
  } else if (part.choices.empty()) {
    words.push_back(part.text);
  }
  for (const BraceParts& choice : part.choices)
    for (std::string& word : words_of(choice)) words.push_back(std::move(word));
  return words;
}

std::vector<std::string> words_of(const BraceParts& parts) {
  std::vector<std::string> words(1);
  for (const BracePart& part : parts) {
    const std::vector<std::string> ends = words_of(part);
    std::vector<std::string> longer;
    longer.reserve(words.size() * ends.size());
    for (const std::string& word : words)
      for (const std::string& end : ends) longer.push_back(word + end);
    words = std::move(longer);
  }
  return words;
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& pattern, WordBudget& budget) {
  if (pattern.size() > kLongestPattern)
    throw ConfigError(
        fmt::format("'{}...': a pattern must have at most {} characters; got {}; write a shorter one",
                    pattern.substr(0, 100), kLongestPattern, pattern.size()));
  const BraceParts parts = parts_of(pattern);
  const BraceSize size = size_of(parts);
  if (size.words > static_cast<double>(budget.words) || size.bytes > static_cast<double>(budget.bytes))
    throw ConfigError(fmt::format(
        "'{}': all patterns of a call must give at most {} words of {} MiB; got more; give a folder", pattern,
        WordBudget{}.words, WordBudget{}.bytes >> 20));
  std::vector<std::string> words = words_of(parts);
  budget.words -= static_cast<std::size_t>(size.words);
  budget.bytes -= static_cast<std::size_t>(size.bytes);
  return words;
}

}  // namespace colonnade::images
