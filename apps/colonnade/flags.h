// CLI11 for verbs whose flags are not settings of a run.
#pragma once

#include <CLI/CLI.hpp>

#include "verbs.h"

namespace colonnade::app {

/// Reads `arguments` into the options of `app`; '_' and '-' are equal in flags. False when `--help` was
/// asked for and printed. Throws ConfigError, with the nearest flag when one is unknown.
bool read_flags(CLI::App& app, const Arguments& arguments);

}  // namespace colonnade::app
