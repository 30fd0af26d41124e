// Faults in the flags of a verb that CLI11 reads, in the form of all messages of the program.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace colonnade::app {

/// Faults of words that are no option of `app`: all unknown flags; a word only where there is no unknown
/// flag. `unsupported` as in read_flags.
std::vector<std::string> unknown_words(const CLI::App& app,
                                       const std::map<std::string, std::string>& unsupported);

/// Faults found by CLI11: malformed numbers, missing options, else its own message.
std::vector<std::string> faults_of(const CLI::App& app, const CLI::ParseError& error);

}  // namespace colonnade::app
