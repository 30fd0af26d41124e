// Help texts, made from the schema.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/parse.h"
#include "colonnade/config/use.h"

namespace colonnade::config {

/// The settings used most, by group.
std::string short_help();
/// Every setting that is implemented, by group.
std::string full_help();
/// The settings that a command of this use reads, by group: those used most, or all.
std::string settings_help(Use use, bool all);
/// One setting in full. Throws ConfigError, with the nearest flag of a verb with `extras` and the settings of
/// `use`, when there is none.
std::string flag_help(const std::string& flag, const std::vector<Extra>& extras = {}, Use use = Use::kTrain);
/// docs/reference/settings.md.
std::string markdown();

struct HelpRequest {
  bool all = false;  ///< --help-all
  std::string flag;  ///< of `--help FLAG`; "": the settings

  friend bool operator==(const HelpRequest&, const HelpRequest&) = default;
};

/// What `--help`, `-h`, `--help-all` or `--help FLAG` asks for; nothing when none of them is there.
std::optional<HelpRequest> help_request(const std::vector<std::string>& arguments);

}  // namespace colonnade::config
