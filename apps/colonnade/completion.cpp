// colonnade completion bash|zsh|fish: prints the completion script of a shell.
#include "colonnade/config/completion.h"

#include <fmt/format.h>

#include "colonnade/base/error.h"
#include "verbs.h"

namespace colonnade::app {

int completion(const Arguments& arguments) {
  const std::string shell = arguments.empty() ? "" : arguments[0];
  if (shell == "--help" || shell == "-h") {
    fmt::print(
        "colonnade completion bash|zsh|fish\n  bash: source <(colonnade completion bash)\n"
        "  zsh:  source <(colonnade completion zsh)\n  fish: colonnade completion fish | source\n");
    return kExitDone;
  }
  std::vector<std::string> names;
  for (const Entry& verb : verbs()) names.emplace_back(verb.name);
  fmt::print("{}", config::completion(shell, names));
  return kExitDone;
}

}  // namespace colonnade::app
