// Reader of the lines of a text file, plain, gzip or zstd, and of the rows of a Parquet file as JSON lines,
// in large chunks with bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include "colonnade/corpus/parquet/rows.h"

namespace colonnade::corpus {

/// Start of a line.
struct LinePosition {
  std::int64_t byte = 0;  ///< uncompressed bytes before it
  std::int64_t line = 1;  ///< line number, from 1
};

/// Throws DataError for a line that starts with a byte order mark followed by `after`: "{" for a JSON object,
/// where Python's json.loads rejects it too, or nothing.
void reject_byte_order_mark(std::string_view line, std::string_view after);

/// Options of a reader.
struct LineLimits {
  std::size_t longest = std::numeric_limits<std::size_t>::max();  ///< maximum bytes kept of a line
  parquet::Columns columns{};  ///< Parquet columns; if empty Parquet is rejected
};

/// Uncompressed bytes of a file. The format is detected by its first bytes: gzip or zstd (several members
/// form one text), or Parquet, which becomes JSON lines.
class ByteReader {
 public:
  ByteReader() = default;
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;
  virtual ~ByteReader() = default;
  /// Throws DataError if the file does not exist, Error if the system cannot open it; for Parquet also like
  /// parquet::open.
  static std::unique_ptr<ByteReader> open(const std::filesystem::path& path, const LineLimits& limits = {});
  /// Reads up to `size` bytes; returns 0 at the end. Throws DataError for a damaged or truncated file, Error
  /// if the system cannot read it.
  virtual std::size_t read(char* out, std::size_t size) = 0;
  /// Moves from the start of the file to a line start found by an earlier reader. Throws like read().
  virtual void go_to(const LinePosition& position);
  /// Whether lines are rows of a table.
  [[nodiscard]] virtual bool is_rows() const { return false; }
  /// Bytes read of the file as stored on disk.
  [[nodiscard]] virtual std::int64_t file_bytes() const = 0;
};

/// Consecutive complete lines, or one line that is too long.
struct LineChunk {
  LinePosition begin, end;
  std::string text;             ///< every line ends with '\n', except possibly the last of the file
  std::int64_t too_long = 0;    ///< bytes of a line that is too long, whose start is in `text`; else 0
  std::int64_t file_bytes = 0;  ///< bytes of the file, as stored on disk, read so far
  bool is_rows = false;         ///< lines are rows of a table
  /// Name of a line in messages: "line 7" or "row 7".
  [[nodiscard]] std::string name_of(std::int64_t line) const;
};

/// Splits a file into chunks of complete lines of about `target` bytes; a longer line makes a longer chunk.
/// Only the start of a line of more than `longest` bytes is kept, so memory is bounded by both.
class LineReader {
 public:
  LineReader(const std::filesystem::path& path, std::size_t target, const LineLimits& limits = {},
             LinePosition from = {});
  /// Reads the next chunk; returns false at the end of the file.
  bool next(LineChunk& chunk);

 private:
  void skip_long_line(LineChunk& chunk);
  std::size_t fill(std::string& text);

  std::unique_ptr<ByteReader> bytes_;
  std::size_t target_, longest_;
  std::string rest_;  // start of a line whose end has not been read yet
  LinePosition next_;
  bool at_end_ = false;
};

}  // namespace colonnade::corpus
