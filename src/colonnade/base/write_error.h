// Errors for failed writes, with the free space of the disk.
#pragma once

#include <filesystem>
#include <string>

namespace colonnade {

/// Whether errno `reason` means that space ran out: full disk, quota, or file size limit.
bool is_no_space(int reason);

/// Throws the error of a failed write to `path`: ConfigError (exit code 2) with the disk's free space if
/// space ran out, else Error.
[[noreturn]] void throw_write_error(const std::filesystem::path& path, int reason);

/// "12.5 MB free of 1.0 GB" for the disk that contains, or will contain, `path`; "" if unknown.
std::string free_space_text(const std::filesystem::path& path);

}  // namespace colonnade
