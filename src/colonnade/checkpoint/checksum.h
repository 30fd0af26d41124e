// XXH3-128 checksums of files, as the manifest keeps them.
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
struct FileSum {
  std::uint64_t bytes = 0;
  std::string xxh3_128;
  bool operator==(const FileSum&) const = default;
};

/// A checksum that grows with the bytes given to it.
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

std::string checksum_of(std::string_view text);

/// Reads the whole file. Throws DataError.
FileSum sum_of_file(const std::filesystem::path& path);

}  // namespace colonnade::checkpoint
