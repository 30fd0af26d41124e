// CLI11 for verbs whose flags are not settings of a run.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "colonnade/config/help_page.h"
#include "verbs.h"

namespace colonnade::app {

/// Describes the verb of `app` in its help; each example is a command line.
void describe(CLI::App& app, const std::string& about, const std::vector<std::string>& examples);

/// Help of the verb of `app`, or of its sub-verb that was parsed.
config::HelpPage help_page(const CLI::App& app);

/// Reads `arguments` into the options of `app`; '_' and '-' are equivalent in flags. False when `--help` was
/// given and printed. Throws ConfigError for an unknown flag, with the nearest one, or with the reason for a
/// flag of Megatron's programs: `unsupported` holds such flags and their messages.
bool read_flags(CLI::App& app, const Arguments& arguments,
                const std::map<std::string, std::string>& unsupported = {});

/// Validator of an integer option: rejects values outside [low, high], in the form of all messages.
CLI::Validator within(std::int64_t low, std::int64_t high = std::numeric_limits<std::int64_t>::max());

/// Validator of a text option: rejects an empty value.
CLI::Validator not_empty();

/// Throws ConfigError for the first given one of `flags`: only a command with `needed` reads it.
void reject_given(const CLI::App& app, std::span<const char* const> flags, const char* needed);

/// Flags of `app`, or of each of its sub-verbs, for completion.
Offers offers_of(const CLI::App& app, const std::string& verb, const std::string& sub = "");

/// Fault when `file` (the value of `flag`) cannot be written; "" when it can, or when it is "". An existing
/// file is replaced, so it must be a regular file, and neither one of `inputs` nor part of a checkpoint. Call
/// it before the work.
std::string why_not_writable(const std::string& flag, const std::string& file,
                             const std::vector<std::filesystem::path>& inputs = {});
/// Throws the fault of why_not_writable as ConfigError.
void require_writable(const std::string& flag, const std::string& file,
                      const std::vector<std::filesystem::path>& inputs = {});

}  // namespace colonnade::app
