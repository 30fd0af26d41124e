// The program behind the executable (entry.cpp): finds the verb and runs it. tensor/torch_errors.h and
// base/program.h turn exceptions into `error:` lines and exit codes.
#include <fmt/format.h>

#include <algorithm>

#include "colonnade/base/edit_distance.h"
#include "colonnade/base/error.h"
#include "colonnade/base/program.h"
#include "colonnade/base/stop_signal.h"
#include "colonnade/config/help_page.h"
#include "colonnade/tensor/torch_errors.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

void print_overview() {
  config::HelpSection table{"verbs", {}};
  for (const Entry& verb : verbs())
    table.rows.push_back({std::string(verb.name), "", std::string(verb.summary)});
  fmt::print("{}", config::render({.usage = "colonnade VERB ...",
                                   .about = "Colonnade " COLONNADE_VERSION
                                            ": trains large transformers. `colonnade help VERB` describes a "
                                            "verb; `colonnade --version` prints the version.",
                                   .sections = {std::move(table)}}));
}

const Entry* find_verb(const std::string& name) {
  const auto found = std::ranges::find(verbs(), name, &Entry::name);
  return found == verbs().end() ? nullptr : &*found;
}

[[noreturn]] void reject(const std::string& name) {
  std::vector<std::string> names;
  for (const Entry& verb : verbs()) names.emplace_back(verb.name);
  const std::string near = nearest_word(name, names);
  throw ConfigError(
      fmt::format("{} must be a verb; got an unknown word; {}", name,
                  near.empty() ? "see `colonnade help`" : fmt::format("did you mean `{}`?", near)));
}

int dispatch(Arguments words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" ||
      (words[0] == "help" && words.size() == 1)) {
    print_overview();
    return words.empty() ? kExitSettings : kExitDone;
  }
  if (words[0] == "--version" || words[0] == "version") {
    fmt::print("colonnade {}\n", COLONNADE_VERSION);
    return kExitDone;
  }
  if (words[0] == "help" && words.size() > 1 && find_verb(words[1]) != nullptr) {
    words.erase(words.begin());  // `help tokenizer encode` is `tokenizer encode --help`
    const auto flag =
        std::find_if(words.begin(), words.end(), [](auto& word) { return word.starts_with('-'); });
    words.insert(flag, "--help");  // and `help pretrain --lr` is `pretrain --help --lr`
  }
  const Entry* const verb =
      find_verb(words[0] == "help" && find_verb("help") == nullptr ? words[1] : words[0]);
  if (verb == nullptr) reject(words[0] == "help" ? words[1] : words[0]);
  if (!verb->takes_stop_signals) unblock_stop_signals();
  return verb->run(Arguments(words.begin() + 1, words.end()));
}

}  // namespace
}  // namespace colonnade::app

int main(int argc, char** argv) {
  return colonnade::run_as_program([&] {
    return colonnade::tensor::translate_torch_errors([&] {
      return colonnade::app::dispatch({argv + 1, argv + argc});
    });
  });
}
