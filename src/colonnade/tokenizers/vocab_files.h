// Tokenizers of older file kinds: GPT-2's vocab.json and merges.txt, BERT's vocab.txt, and tiktoken's ranks.
#pragma once

#include <memory>
#include <string>

#include "colonnade/tokenizers/tokenizer_parts.h"

namespace colonnade::tokenizers {

/// GPT-2: byte-level BPE; <|endoftext|> begins and ends texts. Throws DataError for damaged files.
std::unique_ptr<PartsTokenizer> load_gpt2(const std::string& vocab_file, const std::string& merge_file);

/// BERT: WordPiece over a list of tokens, one a line; [CLS] begins and [SEP] ends texts. A cased one has 100
/// tokens <extra_id_N> behind its vocabulary, as Megatron's. Documents get no special ids: Megatron's BERT
/// data sets add them.
std::unique_ptr<PartsTokenizer> load_bert(const std::string& vocab_file, bool lower_case);

struct TiktokenOptions {
  std::string pattern;              ///< --tiktoken-pattern; empty: v2 for Megatron's files
  std::int64_t num_special = 1000;  ///< --tiktoken-num-special-tokens; Megatron's files only
  std::int64_t vocab_size = 0;      ///< --vocab-size; Megatron's files only; 0: 131072
};
/// tiktoken: pairs merge in the order of the rank of what they become. A .json file is Megatron's (a list of
/// ranks; the special tokens <unk>, <s>, </s>, <mask>, <pad>, <cls>, <sep>, <SPECIAL_N> come first; patterns
/// v1 and v2). Other files have a line of base64 and rank for every token and need a pattern that names whose
/// they are: gpt2, cl100k_base, o200k_base or llama3, each with its special tokens behind the ranks. Throws
/// ConfigError for another pattern, DataError for damaged files.
std::unique_ptr<PartsTokenizer> load_tiktoken(const std::string& path, const TiktokenOptions& options);

}  // namespace colonnade::tokenizers
