// Members of a tar archive, one after the other: ustar, GNU and pax, as WebDataset writers make them.
// Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header Block"; GNU tar's manual, "Basic
// Tar".
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace colonnade::images {

/// A member's place. All numbers are bytes from the beginning of the archive.
struct TarMember {
  std::string name;
  bool regular = false;      ///< a file with contents, neither a folder, a link nor a device
  bool link = false;         ///< a hard or symbolic link
  std::int64_t header = 0;   ///< its first header, that of a long name included
  std::int64_t content = 0;  ///< of a regular file: its first byte
  std::int64_t size = 0;     ///< of a regular file: its length
  std::int64_t end = 0;      ///< the header of the next member
};

/// Reads headers and passes over contents, so memory does not grow with the archive. Names come from ustar's
/// prefix, GNU's long names (up to 64 KiB) or pax's `path`; sizes from octal, base-256 or pax's `size`.
/// Refused: packed archives, sparse files, a size below 0 or behind the end, a wrong checksum.
class TarReader {
 public:
  /// Fills `out` from `offset` on; returns how much there was.
  using ReadAt = std::function<std::size_t(std::int64_t offset, std::span<char> out)>;

  /// The archive is the bytes [begin, end) of what `read` reads; `name` is for messages. `whole`: it must end
  /// with a block of zeros, by which one that is not cut short is known.
  TarReader(std::string name, std::int64_t begin, std::int64_t end, bool whole, ReadAt read);

  /// False at the end. Throws DataError, with name and offset, for what is no tar.
  bool next(TarMember& member);

 private:
  struct Pax {
    std::string path;
    std::int64_t size = -1;
    bool sparse = false;
  };
  struct Header;
  [[nodiscard]] bool read_header(std::int64_t offset, Header& header) const;
  [[nodiscard]] std::string read_text(std::int64_t offset, std::int64_t size, std::int64_t limit) const;
  [[nodiscard]] Pax read_pax(std::int64_t offset, std::int64_t size) const;
  [[nodiscard]] bool read_extension(const Header& header, std::int64_t offset, Pax& own) const;
  [[noreturn]] void refuse(std::int64_t offset, const std::string& rule, const std::string& got) const;

  std::string name_;
  std::int64_t at_, end_;
  bool whole_;
  ReadAt read_;
};

}  // namespace colonnade::images
