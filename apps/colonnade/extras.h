// Shared by verbs with settings of a run: reading settings, and the verb's own flags as text and numbers.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string>

#include "colonnade/config/parse.h"
#include "colonnade/config/use.h"
#include "colonnade/data/split.h"

namespace colonnade::app {

/// As config::parse_all. Throws ConfigError at once when a YAML file cannot be read, since later faults may
/// only follow from its missing settings.
config::Parsed read_settings(const std::vector<std::string>& arguments,
                             const std::vector<config::VerbFlag>& extras = {},
                             config::Use use = config::Use::kTrain);

/// Value of a verb's own flag with one word; `otherwise` when it was not given.
inline std::string extra(const config::Parsed& parsed, const std::string& flag,
                         const std::string& otherwise = "") {
  const auto found = parsed.extras.find(flag);
  return found == parsed.extras.end() ? otherwise : found->second.at(0);
}

/// Value of such a flag as a number; other text adds a fault.
template <typename Number>
Number extra_number(config::Parsed& parsed, const std::string& flag, Number otherwise) {
  if (!parsed.extras.contains(flag)) return otherwise;
  const std::string text = extra(parsed, flag);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size()) return value;
  parsed.faults.push_back(
      fmt::format("{} must be a number; got '{}'; write e.g. {} {}", flag, text, flag, otherwise));
  return otherwise;
}

/// The split of --split-name, or `otherwise` without it; another word adds a fault.
data::Split read_split_name(config::Parsed& parsed, data::Split otherwise);

/// Adds a fault for each setting given after `verb` that `use` does not read. A YAML file may contain any: it
/// is often that of the run that wrote the checkpoint.
void reject_unread_settings(config::Parsed& parsed, config::Use use, const std::string& verb);

/// Help of a verb with settings of a run.
struct VerbHelp {
  std::string usage;  ///< "VERB FLAGS"
  std::vector<config::VerbFlag> extras;
  config::Use use;
};

/// Prints the help requested by `--help`, `-h`, `--help-all` or `--help FLAG` among the arguments: usage, the
/// verb's own flags, and the settings that it reads. False without such a request.
bool print_verb_help(const std::vector<std::string>& arguments, const VerbHelp& help);

}  // namespace colonnade::app
