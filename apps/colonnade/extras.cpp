// See extras.h.
#include "extras.h"

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/config/help.h"
#include "colonnade/job/start.h"

namespace colonnade::app {

config::Parsed read_settings(const std::vector<std::string>& arguments,
                             const std::vector<config::VerbFlag>& extras, config::Use use) {
  config::Parsed parsed = config::parse_all(arguments, extras, use);
  if (parsed.is_incomplete) config::require_none(parsed.faults);
  if (!parsed.run.given.contains("device")) parsed.run.training.device = job::default_device();
  return parsed;
}

data::Split read_split_name(config::Parsed& parsed, data::Split otherwise) {
  if (!parsed.extras.contains("--split-name")) return otherwise;
  const std::string name = extra(parsed, "--split-name");
  const auto found = std::ranges::find(data::kSplitNames, name);
  if (found != data::kSplitNames.end()) return static_cast<data::Split>(found - data::kSplitNames.begin());
  parsed.faults.push_back(
      fmt::format("--split-name must be train, valid or test; got '{}'; write one of them", name));
  return otherwise;
}

void reject_unread_settings(config::Parsed& parsed, config::Use use, const std::string& verb) {
  for (const config::Setting& s : config::schema()) {
    if (config::reads(use, s) || !config::is_from_command_line(parsed.run, s.key) ||
        parsed.run.invalid_keys.contains(s.key))
      continue;
    const std::string value = s.get == nullptr ? "it" : config::text_of(parsed.run, s);
    parsed.faults.push_back(fmt::format(
        "{} has no effect in `{}`; got {}; remove it, or set it in a YAML file", s.flag, verb, value));
  }
}

bool print_verb_help(const std::vector<std::string>& arguments, const VerbHelp& help) {
  const auto asked = config::help_request(arguments);
  if (!asked) return false;
  const bool own = std::ranges::count(help.extras, asked->flag, &config::VerbFlag::flag) > 0;
  if (!asked->flag.empty() && !own) {
    fmt::print("{}", config::flag_help(asked->flag, help.extras, help.use));
    return true;
  }
  std::vector<config::HelpSection> sections{config::verb_flags_help(help.extras)};
  for (config::HelpSection& group : config::settings_help(help.use, asked->all))
    sections.push_back(std::move(group));
  fmt::print("{}", config::render({.usage = fmt::format("colonnade {} SETTINGS", help.usage),
                                   .about = fmt::format(
                                       "SETTINGS are those of `colonnade pretrain`{}; {}.",
                                       help.use == config::Use::kTrain ? "" : " that are read here",
                                       asked->all ? "defaults are in brackets"
                                                  : "--help-all shows every one, --help FLAG one in full"),
                                   .sections = std::move(sections)}));
  return true;
}

}  // namespace colonnade::app
