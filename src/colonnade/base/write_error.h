// Files that could not be written: the exception that says why, with the space of the disk.
#pragma once

#include <filesystem>
#include <string>

namespace colonnade {

/// Whether errno `reason` means that there is no room: a full disk, a quota, the largest size of a file.
bool is_no_space(int reason);

/// Throws for `path`, which could not be written: ConfigError (exit code 2) with the free space of its disk
/// where there is no room, else Error.
[[noreturn]] void throw_write_error(const std::filesystem::path& path, int reason);

/// "12.5 MB free of 1.0 GB" of the disk that `path` is on, or will be on; "" where nobody knows.
std::string free_space_text(const std::filesystem::path& path);

}  // namespace colonnade
