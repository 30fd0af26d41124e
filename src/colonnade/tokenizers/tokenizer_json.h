// Reading of Hugging Face tokenizer.json files.
#pragma once

#include <memory>
#include <string>

#include "colonnade/tokenizers/tokenizer_parts.h"

namespace colonnade::tokenizers {

/// Throws DataError with file and JSON path for a file that is missing, damaged or says something that is not
/// known here. Memory and time are bounded by the size of the file.
TokenizerParts read_tokenizer_parts(const std::string& path);
/// The same of the text of a file; `path` is for messages.
TokenizerParts tokenizer_parts_of(const std::string& path, const std::string& text);
/// What works with these parts.
std::unique_ptr<PartsTokenizer> read_tokenizer_json(const std::string& path);

/// A merge of two tokens, by their texts.
using TextMerge = std::pair<std::string, std::string>;
/// Merges by id. `continuing_prefix` is left out of the second text of a merged one. Throws DataError, with
/// `where` in front, when a token is not in the vocabulary.
Merges merges_of_texts(const std::vector<TextMerge>& merges, const Vocabulary& vocabulary,
                       const std::string& continuing_prefix, const std::string& where);

}  // namespace colonnade::tokenizers
