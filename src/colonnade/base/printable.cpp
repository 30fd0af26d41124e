// See printable.h.
#include "colonnade/base/printable.h"

#include <fmt/format.h>

#include <cstdint>

namespace colonnade {
namespace {

struct Character {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  ///< encoded length; 0: invalid UTF-8
};

Character decode_first(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t value = lead & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value < 0xe000;
  return value < kSmallest[bytes] || value > 0x10ffff || surrogate ? Character{} : Character{value, bytes};
}

bool needs_escape(std::uint32_t c) {
  const bool control = (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0);
  const bool bidirectional =
      c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
  return control || bidirectional || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Character c = decode_first(text);
    const std::size_t bytes = c.bytes > 0 ? c.bytes : 1;
    if (c.bytes > 0 && !needs_escape(c.value))
      result += text.substr(0, bytes);
    else if (c.value < 0x100)
      result += fmt::format("\\x{:02x}", c.bytes > 0 ? c.value : static_cast<unsigned char>(text[0]));
    else
      result += fmt::format("\\u{:04x}", c.value);
    text.remove_prefix(bytes);
  }
  return result;
}

}  // namespace colonnade
