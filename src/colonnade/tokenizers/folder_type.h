// Which tokenizer a folder of files holds.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace colonnade::tokenizers {

/// The files of a Hugging Face folder that say how text becomes ids and messages become text.
std::span<const char* const> tokenizer_files();

struct FolderType {
  std::string type;    ///< the --tokenizer-type that reads the folder as Transformers does; "": none
  std::string unread;  ///< why none does though there are files of a tokenizer; "": there are none, or `type`
};

/// HuggingFaceTokenizer for a tokenizer.json. Without one SentencePieceTokenizer, GPT2BPETokenizer or
/// BertWordPieceLowerCase for tokenizer.model, vocab.json with merges.txt and vocab.txt, if tokenizer_class
/// of tokenizer_config.json (or `model_type` of config.json, where that names no class) is one whose ids
/// these types give, and every token that the folder adds is a piece of the vocabulary. Never throws for bad
/// files: those of tokenizer.json are found by who reads it.
FolderType tokenizer_in(const std::filesystem::path& folder, const std::string& model_type);

}  // namespace colonnade::tokenizers
