// The program's own messages: one line each on standard error, with the rank where there are many.
// Progress lines of training go to standard output and do not pass here.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace colonnade::log {

enum class Level { kInfo, kWarning, kError };

/// Every later line of this process starts with "[rank N] "; -1 (the default) leaves it out.
void set_rank(int rank);

/// Below this level nothing is printed. Default: kInfo.
void set_level(Level level);

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
