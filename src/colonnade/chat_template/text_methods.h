// Strings as Python's methods see them; all of it valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/chat_template/value.h"

namespace colonnade::chat_template {

/// Where `part` begins, in linear time; npos: nowhere.
std::size_t find_in(std::string_view text, std::string_view part);
/// Without white space, or without the characters of `chars`, at its ends.
std::string_view stripped(std::string_view text, const std::string* chars, bool left, bool right);
/// `old` becomes `with`, `most` times; below 0: everywhere.
std::string replaced(std::string_view text, std::string_view old, std::string_view with, std::int64_t most,
                     Budget& budget);
enum class Case { kLower, kUpper, kCapital };
std::string cased(std::string_view text, Case to);
/// Lines without what ends them, or with it; the last one only where it is not empty.
std::vector<std::string> lines_of(std::string_view text, bool with_ends);

}  // namespace colonnade::chat_template
