// See extras.h.
#include "extras.h"

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/config/help.h"

namespace colonnade::app {

config::Parsed read_settings(const std::vector<std::string>& arguments,
                             const std::vector<config::Extra>& extras) {
  config::Parsed parsed = config::parse_all(arguments, extras);
  if (parsed.file_unread) config::require_none(parsed.faults);
  return parsed;
}

void print_verb_help(const std::string& usage, const std::vector<config::Extra>& extras) {
  std::size_t width = 0;
  for (const auto& extra : extras) width = std::max(width, extra.flag.size());
  fmt::print("usage: colonnade {} SETTINGS\n\n", usage);
  for (const auto& extra : extras) fmt::print("  {:{}}  {}\n", extra.flag, width, extra.help);
  fmt::print("\nSETTINGS are those of `colonnade pretrain`:\n\n{}", config::short_help());
}

}  // namespace colonnade::app
