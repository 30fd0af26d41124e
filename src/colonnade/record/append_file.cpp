// See append_file.h.
#include "colonnade/record/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/write_error.h"

namespace colonnade::record {

void back_up_existing(const std::filesystem::path& path) {
  std::error_code absent;
  if (const auto size = std::filesystem::file_size(path, absent); absent || size == 0) return;
  std::filesystem::path free = path.string() + ".1";
  for (int n = 2; std::filesystem::exists(free); ++n) free = fmt::format("{}.{}", path.string(), n);
  std::filesystem::rename(path, free);
  log::info("{} is from an earlier run; renamed to {}", path.string(), free.string());
}

AppendFile::AppendFile(std::filesystem::path path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (fd_ < 0 && is_no_space(errno)) throw_write_error(path_, errno);
  if (fd_ < 0)
    throw Error(
        fmt::format("{} must be writable; {}; choose another folder", path_.string(), std::strerror(errno)));
}

AppendFile::~AppendFile() { ::close(fd_); }

std::uint64_t AppendFile::size() const { return static_cast<std::uint64_t>(::lseek(fd_, 0, SEEK_END)); }

void AppendFile::append(std::string_view record) {
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  const ssize_t written = ::write(fd_, record.data(), record.size());
  if (written == static_cast<ssize_t>(record.size())) return;
  const int reason = written < 0 ? errno : ENOSPC;
  const bool undone = written <= 0 || ::ftruncate(fd_, before) == 0;
  if (!warned_)
    log::warning("{}: a record could not be written; {}, {}{}; the run continues without it", path_.string(),
                 std::strerror(reason), free_space_text(path_), undone ? "" : " (a partial record remains)");
  warned_ = true;
}

}  // namespace colonnade::record
