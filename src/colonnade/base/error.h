// How Colonnade reports what went wrong: one exception type per exit code, one check macro.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "colonnade/base/printable.h"

namespace colonnade {

/// Anything that stops the program. Message form: "<thing>: <rule>; got <values>; <fix>".
/// what() is the message with control characters of names and values escaped (base/printable.h), so that none
/// cuts it short or reaches a terminal. Exit code 1.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string_view message) : std::runtime_error(printable(message)) {}
};

/// The settings are wrong and nothing was started. Exit code 2.
class ConfigError final : public Error {
 public:
  using Error::Error;
};

/// Data or a checkpoint is damaged or missing. Exit code 3.
class DataError final : public Error {
 public:
  using Error::Error;
};

/// A peer was lost or the network broke; the run can be resumed. Exit code 4.
class CommError final : public Error {
 public:
  using Error::Error;
};

/// The process was asked to stop and has saved; the run can be resumed. Exit code 5.
class StopRequested final : public Error {
 public:
  using Error::Error;
};

/// The exit codes of every command (docs/reference/exit_codes.md).
enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,
  kExitSettings = 2,
  kExitData = 3,
  kExitRankLost = 4,
  kExitStopped = 5,
};

/// Throws Error with `message`, file and line: a broken promise between parts of the program.
[[noreturn]] void fail(const char* file, int line, const std::string& message);

}  // namespace colonnade

/// Checks a caller's promise; costs nothing until it fails. User errors throw ConfigError or
/// DataError instead.
#define COL_CHECK(condition, ...)                                        \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::colonnade::fail(__FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
