// Texts of files for tokenizer training.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "colonnade/tokenizers/training_texts.h"

namespace colonnade::preprocess {

/// Iterates over all texts of the inputs: the strings under `json_key` of .jsonl files (also .jsonl.gz,
/// .jsonl.zst), those of that column of Parquet files, and each line of other files. Holds about 1 MB of
/// them, or one line of at most 256 MB. The returned function throws DataError with file and line of the
/// first unusable line, and Error if the system cannot read a file.
tokenizers::NextText read_texts(const std::vector<std::filesystem::path>& inputs,
                                const std::string& json_key);

}  // namespace colonnade::preprocess
