// Completion scripts for bash, zsh and fish, made from the schema and from what each verb offers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/parse.h"
#include "colonnade/config/use.h"

namespace colonnade::config {

/// What can follow a verb, or one of its sub-verbs.
struct Offer {
  std::string verb;
  std::string sub;                             ///< "" for a verb without sub-verbs
  std::vector<Extra> flags;                    ///< its own
  std::optional<Use> settings = std::nullopt;  ///< also the settings of a run that it reads
};

/// The completion script of `bash`, `zsh` or `fish` for `colonnade VERB [SUB] [FLAGS]`, and for what stands
/// after `launch --`. Throws ConfigError for another shell.
std::string completion(const std::string& shell, const std::vector<Offer>& offers);

}  // namespace colonnade::config
