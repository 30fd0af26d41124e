// Detection of the tokenizer in a Hugging Face folder.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace colonnade::tokenizers {

/// Names of the files that define the tokenizer and the chat template of a Hugging Face folder.
std::span<const char* const> tokenizer_files();

struct FolderType {
  std::string type;    ///< --tokenizer-type that gives the ids of Transformers; empty if none does
  std::string reason;  ///< why no type does although there are tokenizer files; else empty
};

/// HuggingFaceTokenizer for a tokenizer.json. Without that file, SentencePieceTokenizer for tokenizer.model,
/// GPT2BPETokenizer for vocab.json with merges.txt, and BertWordPieceLowerCase for vocab.txt. These require
/// that the type gives the ids of the folder's tokenizer_class (tokenizer_config.json; without one, the class
/// of `model_type` of config.json), and that the vocabulary has every token that the folder adds. Never
/// throws for bad files: a bad tokenizer.json is reported when it is loaded.
FolderType detect_tokenizer(const std::filesystem::path& folder, const std::string& model_type);

}  // namespace colonnade::tokenizers
