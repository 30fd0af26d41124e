// Files and folders: whole-file reads, memory maps, durable and atomic writes. All errors contain the path
// and the system's reason.
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

/// The whole file as bytes. Throws DataError if it cannot be read or is a Git LFS pointer.
std::string read_file(const std::filesystem::path& path);

/// Writes `text` to a temporary file next to `path`, syncs it and renames it over `path`: after a crash the
/// old or the new content is there, never a part of it. Throws Error.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// fsync of a file or folder. Throws Error.
void sync_path(const std::filesystem::path& path);

/// Creates `folder` and its missing parents and syncs each parent, so they survive a crash. Throws
/// std::filesystem::filesystem_error or Error.
void create_folders(const std::filesystem::path& folder);

/// Entries of a folder, sorted by name. Throws unreadable().
std::vector<std::filesystem::directory_entry> sorted_entries(const std::filesystem::path& folder);

/// The error "PATH must be readable; got REASON; check its permissions, disk or network".
Error unreadable(const std::filesystem::path& path, const std::error_code& reason);

/// Read-only memory map of a whole file. Movable; unmapped by the destructor. As with every map, access to a
/// file that shrank while mapped raises SIGBUS.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws DataError if the file cannot be opened or mapped or is a Git LFS pointer. An empty file maps to
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
