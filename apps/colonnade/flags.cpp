// See flags.h.
#include "flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "colonnade/base/edit_distance.h"
#include "colonnade/base/error.h"

namespace colonnade::app {
namespace {

std::string with_dashes(std::string word) {
  if (!word.starts_with("--")) return word;
  const auto end = std::find(word.begin(), word.end(), '=');
  std::replace(word.begin(), end, '_', '-');
  return word;
}

/// The message for words that no option takes.
std::string unknown(const CLI::App& app) {
  const std::string word = app.remaining().empty() ? "" : app.remaining().front();
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::string near = nearest_word(word, known);
  return fmt::format("{}: must be a flag of `{}`; got an unknown one; {}", word, app.get_name(),
                     near.empty() ? fmt::format("see `colonnade help {}`", app.get_name())
                                  : fmt::format("did you mean {}?", near));
}

}  // namespace

bool read_flags(CLI::App& app, const Arguments& arguments) {
  Arguments words;
  std::transform(arguments.rbegin(), arguments.rend(), std::back_inserter(words), with_dashes);
  try {
    app.parse(words);  // takes them from the back
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help("colonnade"));
    return false;
  } catch (const CLI::ExtrasError&) {
    throw ConfigError(unknown(app));
  } catch (const CLI::ParseError& error) {
    throw ConfigError(
        fmt::format("{}: {}; see `colonnade help {}`", app.get_name(), error.what(), app.get_name()));
  }
}

}  // namespace colonnade::app
