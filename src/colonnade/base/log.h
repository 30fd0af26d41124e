// The program's own messages: one line each on standard error, with the rank where there are many.
// Progress lines of training go to standard output and do not pass here.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

namespace colonnade::log {

enum class Level { kInfo, kWarning, kError };

/// Every later line of this process starts with "[rank N] "; -1 (the default) leaves it out.
void set_rank(int rank);

/// Below this level nothing is printed. Default: kInfo.
void set_level(Level level);

/// The lowest level that is printed at one of Python's levels (10 debug, 20 info, 30 warning, 40 error, 50
/// critical), which Megatron's --logging-level takes: what lies below the number is left out. Errors are
/// never.
constexpr Level level_of(std::int64_t python) {
  if (python <= 20) return Level::kInfo;
  return python <= 30 ? Level::kWarning : Level::kError;
}

/// Control characters in `text` are escaped, as in errors.
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
