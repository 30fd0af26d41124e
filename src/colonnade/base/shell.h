// Command lines as a person copies them into a shell.
#pragma once

#include <string>
#include <vector>

namespace colonnade {

/// One line that a shell reads as these words: those with characters of its own stand in single quotes.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace colonnade
