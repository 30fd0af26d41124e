// Reader of Hugging Face tokenizer.json files.
#pragma once

#include <memory>
#include <string>

#include "colonnade/tokenizers/hf_tokenizer.h"

namespace colonnade::tokenizers {

/// Reads a tokenizer.json. Throws DataError with file and JSON path if it is missing, damaged or has an
/// unknown component, key or value. Memory and time are bounded by the size of the file.
TokenizerComponents read_tokenizer_components(const std::string& path);
/// Parses the text of a tokenizer.json; `path` is for messages.
TokenizerComponents parse_tokenizer_json(const std::string& path, const std::string& text);
/// The tokenizer of a tokenizer.json.
std::unique_ptr<HfTokenizer> read_tokenizer_json(const std::string& path);

/// A merge of two tokens, by their texts.
using TextMerge = std::pair<std::string, std::string>;
/// Merges by id. A merged token drops the `continuing_prefix` of its second part. Throws DataError that
/// starts with `where` if a token is not in the vocabulary.
Merges merges_of_texts(const std::vector<TextMerge>& merges, const Vocabulary& vocabulary,
                       const std::string& continuing_prefix, const std::string& where);

}  // namespace colonnade::tokenizers
