// MD5, by which others name files. It protects nothing.
// Source: RFC 1321.
#pragma once

#include <string>
#include <string_view>

namespace colonnade {

/// The MD5 of `text` in 32 hexadecimal digits.
std::string md5_hex(std::string_view text);

}  // namespace colonnade
