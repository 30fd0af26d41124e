// What the verbs with settings of a run share: reading them, and the verb's own flags as text and numbers.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string>

#include "colonnade/config/parse.h"
#include "colonnade/config/use.h"
#include "colonnade/data/split.h"

namespace colonnade::app {

/// As config::parse_all. Throws ConfigError at once where a YAML file could not be read: it may hold what
/// then seems to be missing.
config::Parsed read_settings(const std::vector<std::string>& arguments,
                             const std::vector<config::Extra>& extras = {},
                             config::Use use = config::Use::kTrain);

/// The fewest ranks that dense and expert sizes allow.
int smallest_world(const config::Parallel& parallel);

/// The value of a verb's own flag with one word; `otherwise` when it was not given.
inline std::string extra(const config::Parsed& parsed, const std::string& flag,
                         const std::string& otherwise = "") {
  const auto found = parsed.extras.find(flag);
  return found == parsed.extras.end() ? otherwise : found->second.at(0);
}

/// The same as a number; text that is none becomes a fault.
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

/// The split that --split-name names, `otherwise` without one; another word becomes a fault.
data::Split read_split_name(config::Parsed& parsed, data::Split otherwise);

/// Adds a fault for each setting that was typed after `verb` and that `use` does not read. A YAML file may
/// hold any: it is often that of the run which wrote the checkpoint.
void refuse_unread_settings(config::Parsed& parsed, config::Use use, const std::string& verb);

/// A verb with settings of a run, as its help shows it.
struct VerbHelp {
  std::string usage;  ///< "VERB FLAGS"
  std::vector<config::Extra> extras;
  config::Use use;
};

/// Prints what `--help`, `-h`, `--help-all` or `--help FLAG` among the arguments asks for: usage, what the
/// verb's own flags mean, and the settings that it reads. False when none of them is there.
bool print_verb_help(const std::vector<std::string>& arguments, const VerbHelp& help);

}  // namespace colonnade::app
