// Python's string methods on valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/chat_template/value.h"

namespace colonnade::chat_template {

/// Offset of `part`, in linear time; npos if it does not occur.
std::size_t find_in(std::string_view text, std::string_view part);
/// The text without white space, or without the characters in `chars`, at the given ends.
std::string_view stripped(std::string_view text, const std::string* chars, bool left, bool right);
/// The text with `old` replaced by `with` at most `most` times; everywhere if `most` < 0.
std::string replaced(std::string_view text, std::string_view old, std::string_view with, std::int64_t most,
                     Budget& budget);
enum class Case { kLower, kUpper, kCapital };
std::string cased(std::string_view text, Case to);
/// The lines of a text, with or without their line ends; an empty last line is dropped.
std::vector<std::string> lines_of(std::string_view text, bool with_ends);

}  // namespace colonnade::chat_template
