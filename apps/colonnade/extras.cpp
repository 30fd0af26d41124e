// See extras.h.
#include "extras.h"

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/config/help.h"

namespace colonnade::app {

config::Parsed read_settings(const std::vector<std::string>& arguments,
                             const std::vector<config::Extra>& extras) {
  config::Parsed parsed = config::parse_all(arguments, extras);
  if (parsed.cut_short) config::require_none(parsed.faults);
  return parsed;
}

void refuse_settings_of_writing(config::Parsed& parsed, const std::string& verb) {
  for (const char* key : {"save", "save_interval", "save_retain_interval", "no_save_optim", "no_load_optim",
                          "tensorboard_dir"}) {
    if (!config::typed(parsed.run, key)) continue;
    const config::Setting& s = config::setting(key);
    parsed.faults.push_back(
        fmt::format("{}: does nothing in `{}`, which reads weights and writes no run; got {}; "
                    "leave it out",
                    s.flag, verb, config::text_of(parsed.run, s)));
  }
}

void print_verb_help(const std::string& usage, const std::vector<config::Extra>& extras) {
  std::size_t width = 0;
  for (const auto& extra : extras) width = std::max(width, extra.flag.size());
  fmt::print("usage: colonnade {} SETTINGS\n\n", usage);
  for (const auto& extra : extras) fmt::print("  {:{}}  {}\n", extra.flag, width, extra.help);
  fmt::print("\nSETTINGS are those of `colonnade pretrain`:\n\n{}", config::short_help());
}

}  // namespace colonnade::app
