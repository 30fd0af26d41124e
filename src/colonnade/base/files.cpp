// See files.h.
#include "colonnade/base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/file_kind.h"
#include "colonnade/base/write_error.h"

namespace colonnade {
namespace {

namespace fs = std::filesystem;

/// File descriptor that is closed at the end of its scope.
struct Descriptor {
  int fd = -1;
  explicit Descriptor(int value) : fd(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

void write_all(int fd, std::string_view text, const fs::path& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_write_error(path, errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0)
    throw DataError(fmt::format("{}: cannot be opened; {}", path.string(), std::strerror(errno)));
  std::string text;
  char chunk[1 << 16];
  for (;;) {
    const ssize_t n = ::read(file.fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw DataError(fmt::format("{}: cannot be read; {}", path.string(), std::strerror(errno)));
    if (n == 0) break;
    text.append(chunk, static_cast<std::size_t>(n));
  }
  reject_lfs_pointer(text, path);
  return text;
}

std::vector<fs::directory_entry> sorted_entries(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    entries.push_back(*at);
  if (error) throw unreadable(folder, error);
  std::ranges::sort(entries, {}, &fs::directory_entry::path);
  return entries;
}

Error unreadable(const fs::path& path, const std::error_code& reason) {
  return Error(fmt::format("{} must be readable; got {}; check its permissions, disk or network",
                           path.string(), reason.message()));
}

void sync_path(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0 || ::fsync(file.fd) != 0) throw_write_error(path, errno);
}

void create_folders(const fs::path& folder) {
  if (folder.empty() || fs::is_directory(folder)) return;
  const fs::path parent = folder.parent_path();
  if (parent != folder) create_folders(parent);
  fs::create_directory(folder);
  sync_path(parent.empty() ? fs::path(".") : parent);
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  const fs::path staged = path.string() + fmt::format(".part-{}", ::getpid());
  try {
    const Descriptor file(::open(staged.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.fd < 0) throw_write_error(staged, errno);
    write_all(file.fd, text, staged);
    if (::fsync(file.fd) != 0) throw_write_error(staged, errno);
    fs::rename(staged, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(staged, ignored);
    throw;
  }
  sync_path(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0)
    throw DataError(fmt::format("{}: cannot be opened; {}", path.string(), std::strerror(errno)));
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd, 0);
  if (address == MAP_FAILED)
    throw DataError(fmt::format("{}: cannot be mapped; {}", path.string(), std::strerror(errno)));
  data_ = static_cast<const std::byte*>(address);
  try {
    reject_lfs_pointer({reinterpret_cast<const char*>(data_), std::min<std::size_t>(size_, 1024)}, path);
  } catch (...) {
    ::munmap(address, size_);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace colonnade
