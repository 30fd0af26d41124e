// Files and folders: whole-file reads, memory maps, durable and atomic writes. All errors name the
// path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace colonnade {

class Error;

/// The whole file as bytes. Throws DataError when it cannot be read or is a Git LFS pointer.
std::string read_file(const std::filesystem::path& path);

/// Writes `text` beside `path`, syncs it and renames it over `path`: after a crash the old or the
/// new content is there, never a part. Throws Error.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// fsync of a file or folder. Throws Error.
void sync_path(const std::filesystem::path& path);

/// Makes `folder` and what is missing above it, each one synced into the folder that holds it: after a crash
/// they are there. Throws std::filesystem::filesystem_error or Error.
void create_folders(const std::filesystem::path& folder);

/// What a folder holds, by name. Throws unreadable().
std::vector<std::filesystem::directory_entry> entries_of(const std::filesystem::path& folder);

/// "PATH: the system must be able to read it; got REASON; check its rights, disk or network".
Error unreadable(const std::filesystem::path& path, const std::error_code& reason);

/// A read-only memory map of a whole file. Movable; unmapped at the end of its life. A file that
/// shrinks while it is mapped raises SIGBUS, as with every map: check sizes when opening.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws DataError when the file cannot be opened or mapped or is a Git LFS pointer. An empty file maps to
  /// an empty span.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace colonnade
