// Help texts generated from the schema.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/parse.h"
#include "colonnade/config/use.h"

namespace colonnade::config {

/// The most used settings, by group.
std::string short_help();
/// All implemented settings, by group.
std::string full_help();
/// Settings read by commands of this use, by group: all, or the most used.
std::string settings_help(Use use, bool all);
/// Full help of one setting. If it is unknown, throws ConfigError that suggests the nearest of `extras` and
/// of the settings of `use`.
std::string flag_help(const std::string& flag, const std::vector<VerbFlag>& extras = {},
                      Use use = Use::kTrain);
/// The page docs/reference/settings.md.
std::string markdown();

struct HelpRequest {
  bool all = false;  ///< --help-all
  std::string flag;  ///< FLAG of `--help FLAG`; "": all settings

  friend bool operator==(const HelpRequest&, const HelpRequest&) = default;
};

/// The request of `--help`, `-h`, `--help-all` or `--help FLAG`; empty if none of them is given.
std::optional<HelpRequest> help_request(const std::vector<std::string>& arguments);

}  // namespace colonnade::config
