// The executable: finds the verb, runs it, and turns exceptions into `error:` lines and exit codes.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <sstream>

#include "colonnade/base/edit_distance.h"
#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/progress.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

void print_overview() {
  fmt::print("Colonnade {}: trains large transformers.\n\nusage: colonnade VERB ...\n\n", COLONNADE_VERSION);
  std::size_t width = 0;
  for (const Entry& verb : verbs()) width = std::max(width, verb.name.size());
  for (const Entry& verb : verbs()) fmt::print("  {:{}}  {}\n", verb.name, width, verb.summary);
  fmt::print("\n`colonnade help VERB` says more; `colonnade --version` prints the version.\n");
}

const Entry* find_verb(const std::string& name) {
  const auto found = std::ranges::find(verbs(), name, &Entry::name);
  return found == verbs().end() ? nullptr : &*found;
}

[[noreturn]] void refuse(const std::string& name) {
  std::vector<std::string> names;
  for (const Entry& verb : verbs()) names.emplace_back(verb.name);
  const std::string near = nearest_word(name, names);
  throw ConfigError(
      fmt::format("{}: must be a verb; got an unknown word; {}", name,
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
  if (verb == nullptr) refuse(words[0] == "help" ? words[1] : words[0]);
  return verb->run(Arguments(words.begin() + 1, words.end()));
}

/// Every line of the message on standard error, the first one also where a launcher sees it.
int report(const std::exception& error, int code) {
  progress().set_note(error.what());
  std::istringstream lines{std::string(error.what())};
  for (std::string line; std::getline(lines, line);) log::error("{}", line);
  return code;
}

int run(const Arguments& words) {
  try {
    return dispatch(words);
  } catch (const ConfigError& error) {
    return report(error, kExitSettings);
  } catch (const DataError& error) {
    return report(error, kExitData);
  } catch (const CommError& error) {
    return report(error, kExitRankLost);
  } catch (const StopRequested& error) {
    log::info("{}", error.what());
    return kExitStopped;
  } catch (const std::bad_alloc&) {
    return report(
        Error("memory: there is not enough on this machine; see `colonnade plan` for what a run needs"),
        kExitFailed);
  } catch (const std::exception& error) {
    return report(error, kExitFailed);
  }
}

}  // namespace
}  // namespace colonnade::app

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a failed write, not the end of the run
  // A rank's output goes to a file: a line must be there when the rank is killed after it.
  if (std::getenv("RANK") != nullptr) std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const int code = colonnade::app::run({argv + 1, argv + argc});
  // Without the destructors of globals when the run broke off: threads that wait for a lost rank
  // would wait on, or crash and hide the exit code.
  std::fflush(nullptr);
  if (code != colonnade::kExitDone) ::_exit(code);
  return code;
}
