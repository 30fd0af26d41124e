// CLI11 for verbs whose flags are not settings of a run.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "verbs.h"

namespace colonnade::app {

/// Reads `arguments` into the options of `app`; '_' and '-' are equal in flags. False when `--help` was
/// asked for and printed. Throws ConfigError with the nearest flag when one is unknown, and
/// ConfigError with the reason when Megatron's programs know it: `refused` holds flags and what to say of
/// them.
bool read_flags(CLI::App& app, const Arguments& arguments,
                const std::map<std::string, std::string>& refused = {});

/// The flags of `app`, or of each of its sub-verbs, for completion.
Offers offers_of(const CLI::App& app, const std::string& verb, const std::string& sub = "");

/// Throws ConfigError unless `file` (the value of `flag`) can be written; "" is none. Ask before the work.
void require_writable(const std::string& flag, const std::string& file);

}  // namespace colonnade::app
