// Completion scripts for bash, zsh and fish, generated from the schema and the flags of each verb.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/parse.h"
#include "colonnade/config/use.h"

namespace colonnade::config {

/// Completions of a verb or of one of its sub-verbs.
struct VerbCompletion {
  std::string verb;
  std::string sub;                             ///< "" for a verb without sub-verbs
  std::vector<VerbFlag> flags;                 ///< flags of the verb itself
  std::optional<Use> settings = std::nullopt;  ///< also offers the settings read by this use
};

/// Completion script of `bash`, `zsh` or `fish` for `colonnade VERB [SUB] [FLAGS]`, including the command
/// after `launch --`. Throws ConfigError for any other shell.
std::string completion(const std::string& shell, const std::vector<VerbCompletion>& offers);

}  // namespace colonnade::config
