// See flag_faults.h.
#include "flag_faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstdlib>
#include <limits>

#include "colonnade/base/edit_distance.h"
#include "colonnade/base/fault_text.h"
#include "colonnade/config/schema.h"

namespace colonnade::app {
namespace {

/// The options of `app` and of its given sub-verbs.
std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  std::vector<const CLI::Option*> options = app.get_options();
  for (const CLI::App* command : app.get_subcommands()) {
    const auto more = command->get_options();
    options.insert(options.end(), more.begin(), more.end());
  }
  return options;
}

/// Fault of one unknown flag.
std::string unknown(const CLI::App& app, const std::string& word,
                    const std::map<std::string, std::string>& unsupported) {
  if (const auto found = unsupported.find(word); found != unsupported.end())
    return fmt::format("{} {}", word, found->second);
  const auto setting = config::find(word);
  if (setting && setting->setting->cls == config::Class::kUnsupported)
    return fmt::format("{}: {}; got this flag; {}", word, setting->setting->help, setting->setting->fix);
  std::vector<std::string> known;
  for (const CLI::Option* option : options_of(app)) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::string near = nearest_word(word, known);
  return fmt::format("{} must be a flag of `{}`; got an unknown one; {}", word, app.get_name(),
                     near.empty() ? fmt::format("see `colonnade help {}`", app.get_name())
                                  : fmt::format("did you mean {}?", near));
}

/// "INT", "FLOAT" or "TEXT".
std::string type_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();  // e.g. "INT:1 to 8" with a validator
  return type.substr(0, type.find(':'));
}

/// The rule that `text` breaks as a number of `type`; "" when it is valid. Integers are within +-`largest`.
std::string broken_number(const std::string& type, const std::string& text, long long largest) {
  char* end = nullptr;
  errno = 0;
  if (type == "FLOAT") {
    std::strtod(text.c_str(), &end);
    return end == text.c_str() || *end != '\0' ? "must be a number" : "";
  }
  if (type != "INT" && type != "UINT") return "";
  const long long value = std::strtoll(text.c_str(), &end, 0);
  if (end == text.c_str() || *end != '\0') return "must be an integer";
  return errno == ERANGE || value > largest || value < -largest ? "must be an integer of normal size" : "";
}

/// Faults of words that are not numbers in numeric options.
std::vector<std::string> number_faults(const CLI::App& app, long long largest) {
  std::vector<std::string> faults;
  for (const CLI::Option* option : options_of(app)) {
    for (const std::string& word : option->results()) {
      const std::string broken = broken_number(type_of(*option), word, largest);
      const std::string variable = option->get_envname();
      if (!broken.empty())
        faults.push_back(fmt::format("{}{} {}; got '{}'; write e.g. {} {}", option->get_name(),
                                     variable.empty() ? "" : " or " + variable, broken, word,
                                     option->get_name(),
                                     option->get_default_str().empty() ? "8" : option->get_default_str()));
    }
  }
  return faults;
}

std::vector<std::string> missing(const CLI::App& app) {
  std::vector<std::string> faults;
  for (const CLI::Option* option : options_of(app)) {
    const std::string name = option->get_name();
    if (!option->get_required() || option->count() > 0) continue;
    faults.push_back(fmt::format("{} must be given; got none; write {}{}", name,
                                 name.starts_with('-') ? name + " " : "", type_of(*option)));
  }
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (!commands.empty() && app.get_subcommands().empty()) {
    std::vector<std::string> names;
    for (const CLI::App* command : commands) names.push_back(command->get_name());
    faults.push_back(fmt::format("{} requires a sub-verb; got none; write one of {}", app.get_name(),
                                 fmt::join(names, ", ")));
  }
  return faults;
}

}  // namespace

std::vector<std::string> unknown_words(const CLI::App& app,
                                       const std::map<std::string, std::string>& unsupported) {
  std::vector<std::string> faults;
  for (const std::string& word : app.remaining(true))
    if (word.starts_with("--")) faults.push_back(unknown(app, word.substr(0, word.find('=')), unsupported));
  if (faults.empty() && !app.remaining(true).empty())
    faults.push_back(unknown(app, app.remaining(true).front(), unsupported));
  return faults;
}

std::vector<std::string> faults_of(const CLI::App& app, const CLI::ParseError& error) {
  const std::string what = error.what();
  const std::size_t colon = what.find(": ");
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr && colon != std::string::npos)
    return {
        fault_text(what.substr(0, colon), what.substr(colon + 2))};  // "--flag: " and the text of within()
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && what.ends_with(" missing")) {
    const std::string name = what.substr(0, what.find(':'));
    return {fmt::format("{} requires a value; got none; write {} VALUE", name, name)};
  }
  std::vector<std::string> faults = number_faults(app, std::numeric_limits<long long>::max());
  for (std::string& fault : missing(app)) faults.push_back(std::move(fault));
  // CLI11 does not say which options have 32 bits, so numbers above 32 bits are reported only when nothing
  // else is wrong.
  if (faults.empty()) faults = number_faults(app, std::numeric_limits<int>::max());
  if (faults.empty())
    faults.push_back(fmt::format("{}: flags must be as in `colonnade help {}`; got: {}; correct them",
                                 app.get_name(), app.get_name(), what));
  return faults;
}

}  // namespace colonnade::app
