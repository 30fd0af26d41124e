// The program's log: one line per message on standard error, prefixed with the rank in a distributed run.
// Training progress goes to standard output, not through this log.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

namespace colonnade::log {

enum class Level { kInfo, kWarning, kError };

/// Prefixes all later lines of this process with "[rank N] "; -1 (the default): no prefix.
void set_rank(int rank);

/// Lowest level that is printed. Default: kInfo.
void set_level(Level level);

/// Lowest printed level for one of Python's levels (10 debug, 20 info, 30 warning, 40 error, 50 critical), as
/// in Megatron's --logging-level. Errors are always printed.
constexpr Level level_from_python(std::int64_t python) {
  if (python <= 20) return Level::kInfo;
  return python <= 30 ? Level::kWarning : Level::kError;
}

/// Writes one line. Control characters in `text` are escaped, as in errors.
void write(Level level, std::string_view text);

template <typename... T>
void info(fmt::format_string<T...> format, T&&... values) {
  write(Level::kInfo, fmt::format(format, std::forward<T>(values)...));
}
template <typename... T>
void warning(fmt::format_string<T...> format, T&&... values) {
  write(Level::kWarning, fmt::format(format, std::forward<T>(values)...));
}
template <typename... T>
void error(fmt::format_string<T...> format, T&&... values) {
  write(Level::kError, fmt::format(format, std::forward<T>(values)...));
}

}  // namespace colonnade::log
