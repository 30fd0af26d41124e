// colonnade help --markdown | --rules | --all | FLAG: documentation from the schema of settings and the
// rules.
#include <fmt/format.h>

#include "colonnade/base/edit_distance.h"
#include "colonnade/base/error.h"
#include "colonnade/config/help.h"
#include "colonnade/rules/rules_page.h"
#include "verbs.h"

namespace colonnade::app {

Offers help_offers() {
  Offers offers;
  for (const Entry& verb : verbs()) offers.push_back({"help", std::string(verb.name), {}});
  return offers;
}

int help(const Arguments& arguments) {
  const std::string what = arguments.empty() ? "" : arguments[0];
  if (what == "--markdown") {
    fmt::print("{}", config::markdown());
  } else if (what == "--rules") {
    fmt::print("{}", rules::rules_markdown());
  } else if (what == "--all" || what == "--help-all") {
    fmt::print("{}", config::full_help());
  } else if (what == "--help" || what == "-h") {
    fmt::print(
        "{}", config::render({.usage = "colonnade help VERB [WORDS] | FLAG | --all | --markdown | --rules"}));
  } else if (what.starts_with("--")) {
    fmt::print("{}", config::flag_help(what));
  } else {
    std::vector<std::string> names;
    for (const Entry& verb : verbs()) names.emplace_back(verb.name);
    const std::string near = nearest_word(what, names);
    throw ConfigError(
        fmt::format("help must name a verb or a flag; got \"{}\"; {}", what,
                    near.empty() ? "see `colonnade help`" : fmt::format("did you mean `{}`?", near)));
  }
  return kExitDone;
}

}  // namespace colonnade::app
