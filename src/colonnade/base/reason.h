// Error messages of libraries, cleaned for use in our own messages.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace colonnade {

/// The first line of a library's message without its source locations, exception names, conditions and stack
/// traces; `otherwise` if nothing is left.
std::string reason_in(std::string_view message, std::string_view otherwise = "an error");

/// what() of our own errors; reason_in() of what() for all others.
std::string reason_of(const std::exception& error);

}  // namespace colonnade
