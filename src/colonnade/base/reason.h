// What libraries say when they fail, as a part of our own messages.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace colonnade {

/// A library's message without what tells of the library alone: places in its sources, names of its
/// exceptions and conditions, traces of calls. One line; `otherwise` where nothing else is left.
std::string reason_in(std::string_view message, std::string_view otherwise = "an error");

/// what() of our own errors, reason_in() of others'.
std::string reason_of(const std::exception& error);

}  // namespace colonnade
