// Several indexed data sets as one: what `colonnade data merge` does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace colonnade::preprocess {

/// Prefixes of the data sets in a folder, by name; other files are passed over. Throws DataError when a .bin
/// or .idx stands alone or there is none.
std::vector<std::string> data_sets_in(const std::filesystem::path& folder);

struct MergedCounts {
  std::int64_t documents = 0, sequences = 0, tokens = 0;
};

/// Writes the documents of all sets, one set after the other, to OUTPUT.bin and .idx, byte for byte as
/// Megatron's merge_datasets.py. Memory does not grow with the sets. Throws DataError for a damaged set or
/// one of another type than the first, ConfigError when the output is one of the inputs, or when a set has
/// modes and `multimodal` is off.
MergedCounts merge_sets(const std::vector<std::string>& prefixes, const std::string& output, bool multimodal);

}  // namespace colonnade::preprocess
