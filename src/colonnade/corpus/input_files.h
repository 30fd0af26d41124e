// Expansion of --input: files, glob patterns and folders.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace colonnade::corpus {

/// The .jsonl, .jsonl.gz, .jsonl.zst and .parquet files of a folder (not of its subfolders), sorted by name.
/// Throws Error if the system cannot read the folder.
std::vector<std::filesystem::path> line_files_in(const std::filesystem::path& folder);

/// Expands `names` in order: a file stands for itself, a folder for its line_files_in(), anything else is a
/// glob(3) pattern, whose files are sorted by name. Throws DataError for a name without files, ConfigError
/// for pipes and devices, which cannot be read twice, Error for what the system cannot read.
std::vector<std::filesystem::path> input_files(const std::vector<std::string>& names);

}  // namespace colonnade::corpus
