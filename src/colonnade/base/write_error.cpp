// See write_error.h.
#include "colonnade/base/write_error.h"

#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>

#include "colonnade/base/error.h"

namespace colonnade {

namespace fs = std::filesystem;

bool is_no_space(int reason) { return reason == ENOSPC || reason == EDQUOT || reason == EFBIG; }

std::string free_space_text(const fs::path& path) {
  struct statvfs disk {};
  fs::path existing = fs::absolute(path);
  while (::statvfs(existing.c_str(), &disk) != 0) {
    if (existing == existing.parent_path()) return "";
    existing = existing.parent_path();
  }
  const auto text = [](double bytes) {
    constexpr std::string_view kUnits[] = {"B", "kB", "MB", "GB", "TB"};
    std::size_t unit = 0;
    for (; bytes >= 1000 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1000;
    return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
  };
  const auto unit = static_cast<double>(disk.f_frsize);
  return fmt::format("{} free of {}", text(static_cast<double>(disk.f_bavail) * unit),
                     text(static_cast<double>(disk.f_blocks) * unit));
}

void throw_write_error(const fs::path& path, int reason) {
  if (!is_no_space(reason))
    throw Error(fmt::format("{}: cannot be written; {}", path.string(), std::strerror(reason)));
  throw ConfigError(fmt::format("{} must fit on its disk; got {}, {}; free space or choose another folder",
                                path.string(), std::strerror(reason), free_space_text(path)));
}

}  // namespace colonnade
