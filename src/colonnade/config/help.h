// Help texts generated from the schema.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/help_page.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/use.h"

namespace colonnade::config {

/// Help of `pretrain` with the most used settings.
std::string short_help();
/// All implemented settings.
std::string full_help();
/// Settings read by commands of this use, a section for each group: all, or the most used.
std::vector<HelpSection> settings_help(Use use, bool all);
/// A section of a verb's own flags.
HelpSection verb_flags_help(const std::vector<VerbFlag>& flags);
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
