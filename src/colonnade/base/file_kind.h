// File type by magic bytes, for messages about a file of the wrong type.
#pragma once

#include <filesystem>
#include <string_view>

namespace colonnade {

/// "a Git LFS pointer", "an HTML page", "a PyTorch pickle", "a GGUF file", "a TOML or INI file", ...; "" for
/// an unrecognized type. `begin`: the first kilobyte, or all of a shorter file.
std::string_view file_kind(std::string_view begin);

/// Throws DataError if `begin`, the first bytes of `path`, are those of a Git LFS pointer.
void reject_lfs_pointer(std::string_view begin, const std::filesystem::path& path);

}  // namespace colonnade
