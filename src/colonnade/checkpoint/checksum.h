// XXH3-128 checksums of files, as in the manifest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace colonnade::checkpoint {

/// Size and XXH3-128 checksum (32 hexadecimal digits) of a file.
struct FileChecksum {
  std::uint64_t bytes = 0;
  std::string xxh3_128;
  bool operator==(const FileChecksum&) const = default;
};

/// Incremental checksum of bytes.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void update(const void* data, std::size_t bytes);
  [[nodiscard]] std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH3-128 of `text` as 32 hexadecimal digits.
std::string checksum_of(std::string_view text);

/// Size and checksum of a file. Throws DataError when it cannot be read.
FileChecksum file_checksum(const std::filesystem::path& path);

}  // namespace colonnade::checkpoint
