// Command lines quoted for copying into a shell.
#pragma once

#include <string>
#include <vector>

namespace colonnade {

/// The words joined into one shell command line; words with shell metacharacters are single-quoted.
std::string shell_join(const std::vector<std::string>& words);

}  // namespace colonnade
