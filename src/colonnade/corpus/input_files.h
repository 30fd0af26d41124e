// The files that --input names: files, patterns of files, and folders.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace colonnade::corpus {

/// The .jsonl, .jsonl.gz, .jsonl.zst and .parquet files of a folder, not of those in it, by name. Throws
/// Error when the system cannot read the folder.
std::vector<std::filesystem::path> line_files_in(const std::filesystem::path& folder);

/// The files that `names` name, in their order: a file is itself, a folder its line_files_in(), anything else
/// a pattern of glob(3), whose files come by name. Throws DataError for a name without files, ConfigError for
/// pipes and devices, which cannot be read twice, Error for what the system cannot read.
std::vector<std::filesystem::path> input_files(const std::vector<std::string>& names);

}  // namespace colonnade::corpus
