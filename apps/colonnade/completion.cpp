// colonnade completion bash|zsh|fish: prints the completion script for a shell.
#include "colonnade/config/completion.h"

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/config/help_page.h"
#include "verbs.h"

namespace colonnade::app {

Offers completion_offers() {
  return {{"completion", "bash", {}}, {"completion", "zsh", {}}, {"completion", "fish", {}}};
}

int completion(const Arguments& arguments) {
  const std::string shell = arguments.empty() ? "" : arguments[0];
  if (shell == "-h" || std::ranges::count(arguments, "--help") > 0) {
    fmt::print("{}", config::render({.usage = "colonnade completion bash|zsh|fish",
                                     .sections = {{"shells",
                                                   {{"bash", "", "source <(colonnade completion bash)"},
                                                    {"zsh", "", "source <(colonnade completion zsh)"},
                                                    {"fish", "", "colonnade completion fish | source"}}}}}));
    return kExitDone;
  }
  Offers offers;
  for (const Entry& verb : verbs()) {
    const Offers more = verb.offers();
    offers.insert(offers.end(), more.begin(), more.end());
  }
  fmt::print("{}", config::completion(shell, offers));
  return kExitDone;
}

}  // namespace colonnade::app
