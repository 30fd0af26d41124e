// CLI11 for verbs whose flags are not settings of a run.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <string>

#include "verbs.h"

namespace colonnade::app {

/// Reads `arguments` into the options of `app`; '_' and '-' are equal in flags. False when `--help` was
/// asked for and printed. Throws ConfigError with the nearest flag when one is unknown, and
/// ConfigError with the reason when Megatron's programs know it: `refused` holds flags and what to say of
/// them.
bool read_flags(CLI::App& app, const Arguments& arguments,
                const std::map<std::string, std::string>& refused = {});

/// Of an option that takes an integer: refuses those outside of [low, high], in the words of all messages.
CLI::Validator within(std::int64_t low, std::int64_t high = std::numeric_limits<std::int64_t>::max());

/// Of an option that takes a text: refuses the empty one.
CLI::Validator not_empty();

/// Refuses, as ConfigError, the first of `flags` that was given: only a command with `needed` reads it.
void refuse_given(const CLI::App& app, std::span<const char* const> flags, const char* needed);

/// The flags of `app`, or of each of its sub-verbs, for completion.
Offers offers_of(const CLI::App& app, const std::string& verb, const std::string& sub = "");

/// Why `file` (the value of `flag`) cannot be written, as a fault; "" when it can, or when it is "": none.
/// An existing file must be a plain one, for it is replaced, and neither one of `inputs` nor a file of a
/// checkpoint. Ask before the work.
std::string why_not_writable(const std::string& flag, const std::string& file,
                             const std::vector<std::filesystem::path>& inputs = {});
/// The same, thrown as ConfigError.
void require_writable(const std::string& flag, const std::string& file,
                      const std::vector<std::filesystem::path>& inputs = {});

}  // namespace colonnade::app
