// What is wrong with the flags of a verb that CLI11 reads, in the form of all messages of the program.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace colonnade::app {

/// The faults of words that no option of `app` took: of flags; of a word only where there is no such flag.
/// `refused` as in read_flags.
std::vector<std::string> unknown_words(const CLI::App& app,
                                       const std::map<std::string, std::string>& refused);

/// What CLI11 found wrong: numbers that are none, what is missing, else its own words.
std::vector<std::string> faults_of(const CLI::App& app, const CLI::ParseError& error);

}  // namespace colonnade::app
