// The tokenizer of a SentencePiece .model file.
#pragma once

#include <memory>
#include <string>

#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::tokenizers {

/// Loads a .model file, or tokenizer.model in a folder. For a folder, encode_with_bos() adds the bos if its
/// tokenizer_config.json makes Transformers 5 do so. Throws ConfigError for an empty path and DataError for a
/// missing or damaged file.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& path);

}  // namespace colonnade::tokenizers
