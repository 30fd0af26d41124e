// MD5 for file names that other tools define. Not for security.
// Source: RFC 1321.
#pragma once

#include <string>
#include <string_view>

namespace colonnade {

/// MD5 of `text` as 32 hexadecimal digits.
std::string md5_hex(std::string_view text);

}  // namespace colonnade
