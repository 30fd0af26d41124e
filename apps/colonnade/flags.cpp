// See flags.h.
#include "flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "colonnade/base/edit_distance.h"
#include "colonnade/base/error.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"

namespace colonnade::app {
namespace {

std::string with_dashes(std::string word) {
  if (!word.starts_with("--")) return word;
  const auto end = std::find(word.begin(), word.end(), '=');
  std::replace(word.begin(), end, '_', '-');
  return word;
}

/// What there is to say of one flag that no option takes.
std::string unknown(const CLI::App& app, const std::string& word,
                    const std::map<std::string, std::string>& refused) {
  if (const auto found = refused.find(word); found != refused.end())
    return fmt::format("{}: {}", word, found->second);
  const auto setting = config::find(word);
  if (setting && setting->setting->cls == config::Class::kRefused)
    return fmt::format("{}: {}; got it; {}", word, setting->setting->help, setting->setting->way_out);
  std::vector<const CLI::Option*> options = app.get_options();
  for (const CLI::App* command : app.get_subcommands()) {
    const auto more = command->get_options();
    options.insert(options.end(), more.begin(), more.end());
  }
  std::vector<std::string> known;
  for (const CLI::Option* option : options) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::string near = nearest_word(word, known);
  return fmt::format("{}: must be a flag of `{}`; got an unknown one; {}", word, app.get_name(),
                     near.empty() ? fmt::format("see `colonnade help {}`", app.get_name())
                                  : fmt::format("did you mean {}?", near));
}

/// The faults of words that no option takes: of flags; of a word only where there is no such flag.
std::vector<std::string> all_unknown(const CLI::App& app, const std::map<std::string, std::string>& refused) {
  std::vector<std::string> faults;
  for (const std::string& word : app.remaining(true))
    if (word.starts_with("--")) faults.push_back(unknown(app, word.substr(0, word.find('=')), refused));
  if (faults.empty() && !app.remaining(true).empty())
    faults.push_back(unknown(app, app.remaining(true).front(), refused));
  return faults;
}

}  // namespace

bool read_flags(CLI::App& app, const Arguments& arguments,
                const std::map<std::string, std::string>& refused) {
  Arguments words;
  std::transform(arguments.rbegin(), arguments.rend(), std::back_inserter(words), with_dashes);
  // Words that no option takes are kept, so that all of them are told, and before what is missing.
  app.allow_extras();
  std::string fault;
  try {
    app.parse(words);  // takes them from the back
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help("colonnade"));
    return false;
  } catch (const CLI::ParseError& error) {
    fault = fmt::format("{}: {}; see `colonnade help {}`", app.get_name(), error.what(), app.get_name());
  }
  config::require_none(all_unknown(app, refused));
  if (!fault.empty()) throw ConfigError(fault);
  return true;
}

Offers offers_of(const CLI::App& app, const std::string& verb, const std::string& sub) {
  Offers offers;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const Offers more = offers_of(*command, verb, command->get_name());
    offers.insert(offers.end(), more.begin(), more.end());
  }
  if (!offers.empty()) return offers;
  config::Offer offer{verb, sub, {}};
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const int values = option->get_expected_max() == 0 ? 0 : 1;
      if (name != "help") offer.flags.push_back({"--" + name, values, option->get_description()});
    }
  }
  return {offer};
}

void require_writable(const std::string& flag, const std::string& file) {
  if (file.empty()) return;
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path path = fs::absolute(file, error);
  const auto refuse = [&](const char* why) {
    throw ConfigError(
        fmt::format("{}: must name a file that can be written; got {}, {}; name another", flag, file, why));
  };
  if (fs::is_directory(path, error)) refuse("which is a folder");
  if (!fs::is_directory(path.parent_path(), error)) refuse("whose folder does not exist");
  if (::access(path.parent_path().c_str(), W_OK) != 0) refuse("whose folder cannot be written");
}

}  // namespace colonnade::app
