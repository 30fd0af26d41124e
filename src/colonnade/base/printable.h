// Escapes text from files before it reaches a terminal.
#pragma once

#include <string>
#include <string_view>

namespace colonnade {

/// `text` with these characters escaped: control characters except newline and tab, bidirectional controls,
/// Unicode line separators, and bytes that are not valid UTF-8.
std::string printable(std::string_view text);

}  // namespace colonnade
