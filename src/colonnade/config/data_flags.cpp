// See data_flags.h.
#include "colonnade/config/data_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace colonnade::config {

namespace {

constexpr std::string_view kDigits = "0123456789.";

/// Appends the numbers of "99" or "99-1-0": a minus between two numbers is a separator, elsewhere a sign.
/// False if malformed.
bool add_numbers(std::string_view word, std::vector<double>& parts) {
  for (bool more = true; more;) {
    const std::size_t end = word.find('-');
    more = end != std::string_view::npos;
    const std::string_view digits = word.substr(0, end);
    const std::optional<double> part = number_of(digits);
    if (!part || digits.find_first_not_of(kDigits) != std::string_view::npos) return false;
    parts.push_back(*part);
    if (more) word.remove_prefix(end + 1);
  }
  return true;
}

}  // namespace

std::optional<double> number_of(std::string_view word) {
  double value = 0;
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (status != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

SplitWeights parse_split(std::string_view text) {
  constexpr std::string_view kWord = "0123456789.+-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::vector<double> parts;
  for (std::size_t end = 0, at = 0; (at = text.find_first_of(kWord, end)) != std::string_view::npos;) {
    end = std::min(text.find_first_not_of(kWord, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (word != "-" && !add_numbers(word, parts)) return {{}, fmt::format("'{}'", word)};
  }
  if (parts.empty()) return {{}, "no number"};
  if (parts.size() > 3) return {{}, fmt::format("{} numbers", parts.size())};
  double sum = 0;
  for (const double part : parts) sum += part;
  if (!(sum > 0) || !std::isfinite(sum)) return {{}, fmt::format("the sum {}", sum)};
  return {std::move(parts), ""};
}

bool is_weighted_blend(std::span<const std::string> words) {
  bool pairs = !words.empty() && words.size() % 2 == 0;
  for (std::size_t i = 0; i < words.size() && pairs; i += 2) pairs = number_of(words[i]).has_value();
  return pairs;
}

std::optional<DataPathsError> data_paths_error(std::span<const std::string> words) {
  const bool pairs = is_weighted_blend(words);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::optional<double> number = number_of(words[i]);
    if (!number || (pairs && i % 2 == 1)) continue;
    if (!pairs)
      return DataPathsError{
          "weights and prefixes must come in pairs",
          fmt::format("the number {} among {} words", words[i], words.size()),
          fmt::format("write WEIGHT PREFIX for each dataset, or ./{} for a dataset of that name", words[i])};
    if (!(*number > 0) || !std::isfinite(*number))
      return DataPathsError{"weights must be above 0", fmt::format("{} for {}", words[i], words[i + 1]),
                            "remove the dataset"};
  }
  return std::nullopt;
}

}  // namespace colonnade::config
