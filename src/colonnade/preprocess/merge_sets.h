// Merging of indexed data sets for `colonnade data merge`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace colonnade::preprocess {

/// Prefixes of the data sets in a folder, sorted by name; other files are ignored. Throws DataError if a .bin
/// or .idx has no counterpart or if there is no data set.
std::vector<std::string> dataset_prefixes_in(const std::filesystem::path& folder);

struct MergedCounts {
  std::int64_t documents = 0, sequences = 0, tokens = 0;
};

/// Concatenates the documents of all data sets into OUTPUT.bin and .idx, byte-identical to Megatron's
/// merge_datasets.py, in constant memory. Throws DataError for a damaged data set or one of another type than
/// the first, and ConfigError if the output is one of the inputs, or if a data set has modes and `multimodal`
/// is off.
MergedCounts merge_sets(const std::vector<std::string>& prefixes, const std::string& output, bool multimodal);

}  // namespace colonnade::preprocess
