// See words_of_data.h.
#include "colonnade/config/words_of_data.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace colonnade::config {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) + 1 - first);
}

std::string_view unquoted(std::string_view text) {
  text = trimmed(text);
  const bool quoted = text.size() >= 2 && text.front() == text.back() && (text[0] == '\'' || text[0] == '"');
  return quoted ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

std::optional<double> number_of(std::string_view word) {
  double value = 0;
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (status != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

SplitWords read_split(std::string_view text) {
  std::vector<double> parts;
  double sum = 0;
  std::string_view rest = unquoted(text);
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    const std::string_view word = trimmed(rest.substr(0, comma));
    const std::optional<double> part = number_of(word);
    if (!part || !std::isfinite(*part) || *part < 0) return {{}, fmt::format("'{}'", word)};
    parts.push_back(*part);
    sum += *part;
    if (more) rest.remove_prefix(comma + 1);
  }
  if (parts.size() > 3) return {{}, fmt::format("{} numbers", parts.size())};
  if (!(sum > 0) || !std::isfinite(sum)) return {{}, fmt::format("the sum {}", sum)};
  return {std::move(parts), ""};
}

bool are_pairs(std::span<const std::string> words) {
  bool pairs = !words.empty() && words.size() % 2 == 0;
  for (std::size_t i = 0; i < words.size() && pairs; i += 2) pairs = number_of(words[i]).has_value();
  return pairs;
}

std::optional<PathsFault> paths_fault(std::span<const std::string> words) {
  const bool pairs = are_pairs(words);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::optional<double> number = number_of(words[i]);
    if (!number || (pairs && i % 2 == 1)) continue;
    if (!pairs)
      return PathsFault{
          "weights and prefixes must come in pairs",
          fmt::format("the number {} among {} words", words[i], words.size()),
          fmt::format("write WEIGHT PREFIX for each data set, and ./{} for one of that name", words[i])};
    if (!(*number > 0) || !std::isfinite(*number))
      return PathsFault{"weights must be above 0", fmt::format("{} for {}", words[i], words[i + 1]),
                        "leave the data set out"};
  }
  return std::nullopt;
}

}  // namespace colonnade::config
