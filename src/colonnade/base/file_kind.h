// What a file is by its first bytes, for messages about a file that lies in place of another.
#pragma once

#include <filesystem>
#include <string_view>

namespace colonnade {

/// "a Git LFS pointer", "an HTML page", "a PyTorch pickle", "a GGUF file", "a TOML or INI file", ...; "" for
/// bytes of no kind that is met in place of another. `begin`: the first kilobyte, or all of a shorter file.
std::string_view file_kind(std::string_view begin);

/// Throws DataError where `begin`, the first bytes of `path`, are those of a Git LFS pointer.
void require_content(std::string_view begin, const std::filesystem::path& path);

}  // namespace colonnade
