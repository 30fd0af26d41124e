// See crc.h.
#include "colonnade/record/crc.h"

#include <array>
#include <bit>

namespace colonnade::record {
namespace {

using CrcTable = std::array<std::uint32_t, 256>;

constexpr CrcTable make_crc_table(std::uint32_t polynomial) {
  CrcTable table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? polynomial ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr CrcTable kCastagnoli = make_crc_table(0x82f63b78U);
constexpr CrcTable kZlib = make_crc_table(0xedb88320U);

std::uint32_t crc_of(std::string_view bytes, const CrcTable& table) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) { return crc_of(bytes, kCastagnoli); }
std::uint32_t crc32(std::string_view bytes) { return crc_of(bytes, kZlib); }

std::string masked_crc(std::string_view bytes) {
  return little_endian(std::rotr(crc32c(bytes), 15) + 0xa282ead8U, 4);
}

std::string little_endian(std::uint64_t value, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(value >> (8 * i));
  return text;
}

}  // namespace colonnade::record
