// Tokenizers in SentencePiece .model files.
#pragma once

#include <memory>
#include <string>

#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::tokenizers {

/// Reads a .model file, or tokenizer.model in a folder: then encode_with_begin() puts the bos in front where
/// the tokenizer_config.json of the folder makes Transformers 5 do so. Throws ConfigError for an empty path
/// and DataError when a file is missing or damaged.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& path);

}  // namespace colonnade::tokenizers
