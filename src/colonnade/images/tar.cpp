// See tar.h.
#include "colonnade/images/tar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "colonnade/base/error.h"

namespace colonnade::images {
namespace {

constexpr std::int64_t kBlock = 512;
constexpr std::int64_t kLongestName = 1 << 16;
constexpr std::int64_t kLongestPax = 1 << 20;

std::string_view field(const std::array<char, kBlock>& block, std::size_t at, std::size_t size) {
  const std::string_view all(block.data() + at, size);
  return all.substr(0, all.find('\0'));
}

/// Parses a number field: octal digits between spaces, or, if the first bit is set, 255 or 95 bits
/// big-endian. Returns -1 if it is invalid, negative or larger than an int64.
std::int64_t number(const std::array<char, kBlock>& block, std::size_t at, std::size_t size) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(block[at + i]); };
  std::uint64_t value = 0;
  if ((byte(0) & 0x80U) != 0) {
    for (std::size_t i = 0; i < size; ++i) {
      if ((value >> 55U) != 0) return -1;
      value = (value << 8U) | (i == 0 ? byte(0) & 0x7FU : byte(i));
    }
    return static_cast<std::int64_t>(value);
  }
  std::string_view digits = field(block, at, size);
  while (!digits.empty() && digits.front() == ' ') digits.remove_prefix(1);
  while (!digits.empty() && digits.back() == ' ') digits.remove_suffix(1);
  for (const char c : digits) {  // 12 octal digits hold 36 bits
    if (c < '0' || c > '7') return -1;
    value = value * 8 + static_cast<std::uint64_t>(c - '0');
  }
  return static_cast<std::int64_t>(value);
}

bool all_zero(const std::array<char, kBlock>& block) {
  for (const char c : block)
    if (c != 0) return false;
  return true;
}

/// Whether the header's checksum is the sum of its bytes, with its own 8 bytes as spaces; some old writers
/// sum signed bytes.
bool checksum_matches(const std::array<char, kBlock>& block) {
  std::int64_t plain = 0, with_sign = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const char c = i >= 148 && i < 156 ? ' ' : block[i];
    plain += static_cast<unsigned char>(c);
    with_sign += static_cast<signed char>(c);
  }
  const std::int64_t stored = number(block, 148, 8);
  return stored == plain || stored == with_sign;
}

}  // namespace

struct TarReader::Header {
  std::array<char, kBlock> block;
  [[nodiscard]] char type() const { return block[156]; }
  [[nodiscard]] std::int64_t size() const { return number(block, 124, 12); }
  [[nodiscard]] std::string name() const {
    std::string text(field(block, 0, 100));
    if (std::string_view(block.data() + 257, 6) == std::string_view("ustar\0", 6))
      if (const std::string_view prefix = field(block, 345, 155); !prefix.empty())
        text = fmt::format("{}/{}", prefix, text);
    return text;
  }
};

TarReader::TarReader(std::string name, std::int64_t begin, std::int64_t end, bool complete, ReadAt read)
    : name_(std::move(name)), at_(begin), end_(end), complete_(complete), read_(std::move(read)) {}

void TarReader::fail(std::int64_t offset, const std::string& rule, const std::string& got) const {
  throw DataError(fmt::format("{}: {}; got {} at byte {}; rebuild the shard, or give --on-error skip", name_,
                              rule, got, offset));
}

/// Returns false at the end of the archive.
bool TarReader::read_header(std::int64_t offset, Header& header) const {
  if (offset == end_ && !complete_) return false;
  if (end_ - offset < kBlock || read_(offset, header.block) != static_cast<std::size_t>(kBlock))
    fail(offset, "a complete tar file must end with a block of zeros",
         fmt::format("{} bytes", std::max<std::int64_t>(end_ - offset, 0)));
  if (all_zero(header.block)) return false;
  if (!checksum_matches(header.block)) {
    const auto starts = [&](std::string_view with) {
      return offset == 0 && std::string_view(header.block.data(), with.size()) == with;
    };
    const bool compressed = starts("\x1f\x8b") || starts("\x28\xb5\x2f\xfd") || starts("BZh") ||
                            starts(std::string_view("\xfd"
                                                    "7zXZ",
                                                    5));
    fail(offset, compressed ? "a shard must not be compressed as a whole" : "a header's checksum must match",
         compressed ? "a compressed file" : "other bytes");
  }
  if (header.size() < 0) fail(offset, "a size must be a number of bytes, at least 0", "none");
  return true;
}

std::string TarReader::read_text(std::int64_t offset, std::int64_t size, std::int64_t limit) const {
  if (size > limit)
    fail(offset, fmt::format("a header of long names must be at most {} bytes", limit),
         fmt::format("{}", size));
  std::string text(static_cast<std::size_t>(size), '\0');
  if (size > end_ - offset || read_(offset, text) != text.size())
    fail(offset, "a header must be complete", "the end of the file");
  return text;
}

TarReader::Pax TarReader::read_pax(std::int64_t offset, std::int64_t size) const {
  const std::string text = read_text(offset, size, kLongestPax);
  Pax pax;
  std::string_view rest = text;
  while (!rest.empty() && rest.front() != '\0') {
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const auto digits = static_cast<std::size_t>(end - rest.data());
    if (error != std::errc() || length <= digits + 1 || length > rest.size() || rest[digits] != ' ' ||
        rest[length - 1] != '\n')
      fail(offset, "a pax header must be records LENGTH KEY=VALUE", "something else");
    const std::string_view record = rest.substr(digits + 1, length - digits - 2);
    rest.remove_prefix(length);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) fail(offset, "a pax record must be KEY=VALUE", "no '='");
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") pax.path = value;
    if (key.substr(0, 10) == "GNU.sparse") pax.sparse = true;
    if (key != "size") continue;
    const auto [last, wrong] = std::from_chars(value.data(), value.data() + value.size(), pax.size);
    if (wrong != std::errc() || last != value.data() + value.size() || pax.size < 0)
      fail(offset, "pax's size must be a number of bytes, at least 0",
           fmt::format("'{}'", value.substr(0, 30)));
  }
  return pax;
}

/// Reads an extension header, which applies to the next member; returns false for the header of a member.
bool TarReader::read_extension(const Header& header, std::int64_t offset, Pax& own) const {
  const std::int64_t content = offset + kBlock;
  switch (header.type()) {
    case 'L': {
      const std::string text = read_text(content, header.size(), kLongestName);
      own.path = text.substr(0, text.find('\0'));
      return true;
    }
    case 'K':  // long link target
      (void)read_text(content, header.size(), kLongestName);
      return true;
    case 'x':
    case 'g': {
      Pax pax = read_pax(content, header.size());
      if (header.type() == 'g') {  // global headers would be missed when a single sample is read
        if (!pax.path.empty() || pax.size >= 0 || pax.sparse)
          fail(offset, "a global pax header must not set paths or sizes", "one that does");
        return true;
      }
      if (!pax.path.empty()) own.path = std::move(pax.path);
      if (pax.size >= 0) own.size = pax.size;
      own.sparse = own.sparse || pax.sparse;
      return true;
    }
    default:
      return false;
  }
}

namespace {

/// Whether a header of this type is followed by contents: links, folders and devices have none, whatever
/// their size fields say.
bool has_contents(char type) { return type < '1' || type > '6'; }

bool is_file(char type) { return type == '0' || type == '\0' || type == '7'; }

}  // namespace

bool TarReader::next(TarMember& member) {
  Header header{};
  Pax own;
  member.header = at_;
  for (int extensions = 0; read_header(at_, header); ++extensions) {
    const bool more = read_extension(header, at_, own);
    const std::int64_t content = at_ + kBlock;
    if (!more && (header.type() == 'S' || own.sparse))
      fail(at_, "members must not be sparse", "a sparse file");
    const std::int64_t size = !more && own.size >= 0 ? own.size : header.size();
    const std::int64_t stored = has_contents(header.type()) ? size : 0;
    if (stored > end_ - content)
      fail(at_, "a member must lie within a complete archive",
           fmt::format("{} bytes of which {} are present", stored, end_ - content));
    at_ = content + std::min((stored + kBlock - 1) / kBlock * kBlock, end_ - content);
    if (more && extensions > 8) fail(member.header, "a member must have at most 8 extension headers", "more");
    if (more) continue;
    member.name = own.path.empty() ? header.name() : own.path;
    member.regular = is_file(header.type()) && !member.name.ends_with('/');
    member.link = header.type() == '1' || header.type() == '2';
    member.content = content;
    member.size = member.regular ? stored : 0;
    member.end = at_;
    return true;
  }
  if (at_ != member.header) fail(at_, "an extension header must be followed by a member", "the end");
  return false;
}

}  // namespace colonnade::images
