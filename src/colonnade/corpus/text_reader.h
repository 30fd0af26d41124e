// Lines of a text file, plain, gzip or zstd, and rows of a Parquet file as lines of JSON, read in large
// pieces with bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include "colonnade/corpus/parquet/rows.h"

namespace colonnade::corpus {

/// The beginning of a line.
struct LinePosition {
  std::int64_t byte = 0;  ///< bytes before it, unpacked
  std::int64_t line = 1;  ///< its number in the file, from 1
};

/// Throws DataError for a line that begins with a byte order mark and, behind it, with `behind`: "{" of a
/// JSON object, in front of which Python's json.loads refuses it too, or nothing.
void refuse_byte_order_mark(std::string_view line, std::string_view behind);

/// What a reader is asked to give.
struct LineLimits {
  std::size_t longest = std::numeric_limits<std::size_t>::max();  ///< bytes of a line that are kept
  parquet::Columns columns{};                                     ///< of Parquet; without any it is refused
};

/// Bytes of a file, unpacked where its first bytes say gzip or zstd (several members in a row are one text),
/// and lines of JSON where they say Parquet.
class ByteReader {
 public:
  ByteReader() = default;
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;
  virtual ~ByteReader() = default;
  /// Throws DataError when there is no such file, Error when the system cannot open it; of Parquet also as
  /// parquet::open.
  static std::unique_ptr<ByteReader> open(const std::filesystem::path& path, const LineLimits& limits = {});
  /// Fills up to `size` bytes; 0 at the end. Throws DataError when the file is damaged or cut, Error when the
  /// system cannot read it.
  virtual std::size_t read(char* out, std::size_t size) = 0;
  /// From the beginning of the file to a line's, which an earlier reader found. Throws as read().
  virtual void go_to(const LinePosition& position);
  /// Whether lines are rows of a table.
  [[nodiscard]] virtual bool is_rows() const { return false; }
  /// Bytes of the file, packed as they are, that were read.
  [[nodiscard]] virtual std::int64_t file_bytes() const = 0;
};

/// Whole lines that follow each other, or one line that is too long.
struct LineChunk {
  LinePosition begin, end;
  std::string text;             ///< every line ends with '\n', but perhaps the file's last
  std::int64_t too_long = 0;    ///< bytes of the one line, of which `text` holds the beginning; else 0
  std::int64_t file_bytes = 0;  ///< of the file, packed as they are, that were read so far
  bool is_rows = false;         ///< lines are rows of a table
  /// What a message names, "line 7" or "row 7".
  [[nodiscard]] std::string name_of(std::int64_t line) const;
};

/// Cuts a file into chunks of whole lines of about `target` bytes; a longer line makes a longer chunk. Of a
/// line of more than `longest` bytes only the beginning is kept, so memory is bounded by the two.
class LineReader {
 public:
  LineReader(const std::filesystem::path& path, std::size_t target, const LineLimits& limits = {},
             LinePosition from = {});
  /// False at the end of the file.
  bool next(LineChunk& chunk);

 private:
  void pass_over(LineChunk& chunk);
  std::size_t fill(std::string& text);

  std::unique_ptr<ByteReader> bytes_;
  std::size_t target_, longest_;
  std::string rest_;  // the beginning of a line whose end was not read yet
  LinePosition next_;
  bool at_end_ = false;
};

}  // namespace colonnade::corpus
