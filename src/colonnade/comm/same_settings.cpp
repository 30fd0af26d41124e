// Comparison of all ranks' settings with those of rank 0.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "colonnade/base/error.h"
#include "colonnade/comm/rendezvous.h"

namespace colonnade::comm {
namespace {

using Settings = std::map<std::string, std::string>;

/// Names and values, each terminated by a zero byte, which none of them contains.
std::string to_text(const Settings& settings) {
  std::string text;
  for (const auto& [key, value] : settings) text.append(key).append(1, '\0').append(value).append(1, '\0');
  return text;
}

Settings from_text(const std::string& text) {
  Settings settings;
  for (std::size_t at = 0; at < text.size();) {
    const std::string key = text.c_str() + at;
    const std::string value = text.c_str() + at + key.size() + 1;
    at += key.size() + value.size() + 2;
    settings.emplace(key, value);
  }
  return settings;
}

std::string value(const Settings& settings, const std::string& key) {
  const auto it = settings.find(key);
  return it == settings.end() ? "nothing" : fmt::format("'{}'", it->second);
}

/// Adds one line per key in which `theirs` differs from `first`.
void compare_settings(int rank, const Settings& first, const Settings& theirs,
                      std::vector<std::string>& faults) {
  Settings keys = first;
  keys.insert(theirs.begin(), theirs.end());
  for (const auto& [key, ignored] : keys) {
    const std::string a = value(first, key), b = value(theirs, key);
    if (a != b) faults.push_back(fmt::format("{} is {} on rank {} and {} on rank 0", key, b, rank, a));
  }
}

}  // namespace

void check_same_settings(const Group& world, const Settings& settings) {
  if (world.size() == 1) return;
  const std::vector<std::string> texts = world.all_gather_text(to_text(settings), "start / compare settings");
  std::vector<std::string> faults;
  const Settings first = from_text(texts.front());
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] != texts.front()) compare_settings(static_cast<int>(r), first, from_text(texts[r]), faults);
  }
  if (faults.empty()) return;
  constexpr std::size_t kShown = 20;
  const std::size_t more = faults.size() > kShown ? faults.size() - kShown : 0;
  faults.resize(faults.size() - more);
  throw ConfigError(
      fmt::format("settings must be equal on all ranks; got {}{}; start all ranks with one command",
                  fmt::join(faults, "; "), more > 0 ? fmt::format("; and {} more", more) : ""));
}

}  // namespace colonnade::comm
