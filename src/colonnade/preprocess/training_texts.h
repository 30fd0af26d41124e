// The texts of files, for the training of a tokenizer.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "colonnade/tokenizers/training_texts.h"

namespace colonnade::preprocess {

/// All texts of the inputs: of .jsonl files (also .jsonl.gz, .jsonl.zst) the strings under `json_key`, of
/// Parquet those of the column, of other files each line. Holds about 1 MB of them, or one line, which has at
/// most 256 MB. The function throws DataError that names the file and line of the first line that cannot be
/// used, Error when the system cannot read a file.
tokenizers::NextText read_texts(const std::vector<std::filesystem::path>& inputs,
                                const std::string& json_key);

}  // namespace colonnade::preprocess
