// Shell completion, made from the schema.
#pragma once

#include <string>
#include <vector>

namespace colonnade::config {

/// The completion script of `bash`, `zsh` or `fish` for `colonnade VERB [FLAGS]`. Throws ConfigError
/// for another shell.
std::string completion(const std::string& shell, const std::vector<std::string>& verbs);

}  // namespace colonnade::config
