// See md5.h.
#include "colonnade/base/md5.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace colonnade {
namespace {

using Words = std::array<std::uint32_t, 4>;

/// The RFC's constants floor(2^32 |sin(i + 1)|).
std::array<std::uint32_t, 64> sines() {
  std::array<std::uint32_t, 64> table{};
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] =
        static_cast<std::uint32_t>(std::floor(std::abs(std::sin(static_cast<double>(i + 1))) * 4294967296.0));
  return table;
}

std::uint32_t word(std::string_view block, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(block[4 * at + i]);
  return value;
}

void add_block(Words& state, std::string_view block) {
  static const std::array<std::uint32_t, 64> kSines = sines();
  constexpr std::array<std::array<int, 4>, 4> kShifts{
      {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};
  auto [a, b, c, d] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::array<std::uint32_t, 4> mixed{(b & c) | (~b & d), (d & b) | (~d & c), b ^ c ^ d, c ^ (b | ~d)};
    const std::array<std::size_t, 4> word_index{i, 5 * i + 1, 3 * i + 5, 7 * i};
    const std::size_t round = i / 16;
    const std::uint32_t sum = a + mixed[round] + kSines[i] + word(block, word_index[round] % 16);
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kShifts[round][i % 4]);
  }
  const Words added{a, b, c, d};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += added[i];
}

}  // namespace

std::string md5_hex(std::string_view text) {
  Words state{0x67452301U, 0xefcdab89U, 0x98badcfeU, 0x10325476U};
  const std::uint64_t bits = 8 * std::uint64_t{text.size()};
  for (; text.size() >= 64; text.remove_prefix(64)) add_block(state, text.substr(0, 64));
  std::string end(text);
  end.push_back('\x80');
  end.append((120 - end.size()) % 64, '\0');
  for (int i = 0; i < 8; ++i) end.push_back(static_cast<char>(bits >> 8 * i));
  for (std::size_t at = 0; at < end.size(); at += 64) add_block(state, std::string_view(end).substr(at, 64));
  std::string hex;
  for (const std::uint32_t each : state)
    for (int i = 0; i < 4; ++i) hex += fmt::format("{:02x}", each >> 8 * i & 0xff);
  return hex;
}

}  // namespace colonnade
