// Error reporting: one exception type per exit code, one check macro.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "colonnade/base/printable.h"

namespace colonnade {

/// Any error that stops the program. Message form: "<thing> <rule>; got <values>; <fix>".
/// Control characters in the message are escaped (base/printable.h). Exit code 1.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string_view message) : std::runtime_error(printable(message)) {}
};

/// Invalid settings; nothing was started. Exit code 2.
class ConfigError final : public Error {
 public:
  using Error::Error;
};

/// Damaged or missing data or checkpoint. Exit code 3.
class DataError final : public Error {
 public:
  using Error::Error;
};

/// A lost peer or a broken network; the run can be resumed. Exit code 4.
class CommError final : public Error {
 public:
  using Error::Error;
};

/// A requested stop after a save; the run can be resumed. Exit code 5.
class StopRequested final : public Error {
 public:
  using Error::Error;
};

/// Exit codes of all commands (docs/reference/exit_codes.md).
enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,
  kExitSettings = 2,
  kExitData = 3,
  kExitRankLost = 4,
  kExitStopped = 5,
};

/// Throws Error with `message`, file and line, for a violated precondition inside the program.
[[noreturn]] void fail(const char* file, int line, const std::string& message);

}  // namespace colonnade

/// Checks a precondition; the message is formatted only on failure. User errors throw ConfigError or
/// DataError instead.
#define COL_CHECK(condition, ...)                                        \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::colonnade::fail(__FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
