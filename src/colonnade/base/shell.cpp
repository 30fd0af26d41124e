// See shell.h.
#include "colonnade/base/shell.h"

#include <string_view>

namespace colonnade {

std::string shell_join(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:@%+^";
  std::string line;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
    std::string text;
    for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
    line += (line.empty() ? "" : " ") + (plain ? word : "'" + text + "'");
  }
  return line;
}

}  // namespace colonnade
