// Text out of files on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace colonnade {

/// `text` with all that could cut a message short or command a terminal as an escape: control characters
/// other than line ends and tabs, characters that reverse the direction of text, and bytes that are no UTF-8.
std::string printable(std::string_view text);

}  // namespace colonnade
