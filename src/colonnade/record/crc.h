// Checksums and little-endian numbers of record files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace colonnade::record {

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);
/// CRC-32 of zlib (reflected polynomial 0xedb88320) of `bytes`.
std::uint32_t crc32(std::string_view bytes);
/// CRC in a TFRecord frame: crc32c rotated by 15, plus 0xa282ead8, as four little-endian bytes.
std::string masked_crc(std::string_view bytes);

/// The lowest `bytes` bytes of `value`, lowest first.
std::string little_endian(std::uint64_t value, std::size_t bytes);

}  // namespace colonnade::record
