// Texts that a tokenizer is trained on, one after the other.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade::data {

/// The next text, which lasts until the next call; nothing at the end.
using NextText = std::function<std::optional<std::string_view>()>;

/// All texts of the inputs: of .jsonl files (also .jsonl.gz, .jsonl.zst) the strings under `json_key`, of
/// Parquet those of the column, of other files each line. Holds about 1 MB of them, or one line, which has at
/// most 256 MB. The function throws DataError that names the file and line of the first line that cannot be
/// used, Error when the system cannot read a file.
NextText read_texts(const std::vector<std::filesystem::path>& inputs, const std::string& json_key);

/// What is wrong where nothing is left to train on.
constexpr const char* kNoTrainingText =
    "tokenizer: must get text to train on; got none; check --input and, of JSON, --json-key";

}  // namespace colonnade::data
