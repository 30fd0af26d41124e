// Lines of a text file, plain, gzip or zstd, read in large pieces with bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace colonnade::data {

/// Bytes of a file, unpacked where its first bytes say gzip or zstd (several members in a row are one text).
class ByteReader {
 public:
  ByteReader() = default;
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;
  virtual ~ByteReader() = default;
  /// Throws DataError when the file cannot be opened.
  static std::unique_ptr<ByteReader> open(const std::filesystem::path& path);
  /// Fills up to `size` bytes; 0 at the end. Throws DataError when the file is damaged or cut.
  virtual std::size_t read(char* out, std::size_t size) = 0;
};

/// Whole lines that follow each other.
struct LineChunk {
  std::int64_t first_line = 1;  ///< number of the first line in the file, from 1
  std::string text;             ///< every line ends with '\n', but perhaps the file's last
};

/// Cuts a file into chunks of whole lines of about `target` bytes; a longer line makes a longer chunk.
class LineReader {
 public:
  LineReader(const std::filesystem::path& path, std::size_t target)
      : bytes_(ByteReader::open(path)), target_(target) {}
  /// False at the end of the file.
  bool next(LineChunk& chunk);

 private:
  std::unique_ptr<ByteReader> bytes_;
  std::size_t target_;
  std::string rest_;  // the beginning of a line whose end was not read yet
  std::int64_t line_ = 1;
  bool at_end_ = false;
};

}  // namespace colonnade::data
