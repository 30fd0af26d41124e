// Reader of tar archives: ustar, GNU and pax, as written by WebDataset tools.
// Sources: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header Block"; GNU tar's manual, "Basic
// Tar".
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace colonnade::images {

/// A member and its location. All offsets are bytes from the start of the archive.
struct TarMember {
  std::string name;
  bool regular = false;      ///< a file with contents, not a folder, link or device
  bool link = false;         ///< a hard or symbolic link
  std::int64_t header = 0;   ///< offset of its first header, including one for a long name
  std::int64_t content = 0;  ///< offset of a regular file's contents
  std::int64_t size = 0;     ///< bytes of a regular file
  std::int64_t end = 0;      ///< offset of the next member's header
};

/// Reads headers and skips contents, so memory does not grow with the archive. Names come from ustar's
/// prefix, GNU's long names (up to 64 KiB) or pax's `path`; sizes from octal, base-256 or pax's `size`.
/// Rejects compressed archives, sparse files, negative sizes and sizes beyond the end, and wrong checksums.
class TarReader {
 public:
  /// Fills `out` from `offset` on; returns the number of bytes read.
  using ReadAt = std::function<std::size_t(std::int64_t offset, std::span<char> out)>;

  /// The archive is bytes [begin, end) of `read`; `name` is for messages. A `complete` archive must end with
  /// a block of zeros, which detects truncation.
  TarReader(std::string name, std::int64_t begin, std::int64_t end, bool complete, ReadAt read);

  /// Reads the next member; returns false at the end. Throws DataError with name and offset for an invalid
  /// archive.
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
  [[noreturn]] void fail(std::int64_t offset, const std::string& rule, const std::string& got) const;

  std::string name_;
  std::int64_t at_, end_;
  bool complete_;
  ReadAt read_;
};

}  // namespace colonnade::images
