// Loaders of other tokenizer files: GPT-2's vocab.json and merges.txt, BERT's vocab.txt, and tiktoken's
// ranks.
#pragma once

#include <memory>
#include <string>

#include "colonnade/tokenizers/hf_tokenizer.h"

namespace colonnade::tokenizers {

/// GPT-2's byte-level BPE; <|endoftext|> is bos and eos. Throws DataError for damaged files.
std::unique_ptr<HfTokenizer> load_gpt2(const std::string& vocab_file, const std::string& merge_file);

/// BERT's WordPiece over a vocabulary of one token per line; [CLS] is bos and [SEP] is eos. The cased
/// tokenizer has 100 tokens <extra_id_N> after its vocabulary, as in Megatron. Documents get no special ids:
/// Megatron's BERT data sets add them.
std::unique_ptr<HfTokenizer> load_bert(const std::string& vocab_file, bool lower_case);

struct TiktokenOptions {
  std::string pattern;              ///< --tiktoken-pattern; empty is v2 for Megatron's files
  std::int64_t num_special = 1000;  ///< --tiktoken-num-special-tokens; Megatron's files only
  std::int64_t vocab_size = 0;      ///< --vocab-size; Megatron's files only; 0 is 131072
};
/// tiktoken's BPE: pairs merge in the order of the merged token's rank. A .json file is Megatron's: a list of
/// ranks after the special tokens <unk>, <s>, </s>, <mask>, <pad>, <cls>, <sep>, <SPECIAL_N>, with pattern v1
/// or v2. Other files have a line of base64 and rank per token and need the name of their encoding as
/// pattern: gpt2, cl100k_base, o200k_base or llama3, each with its special tokens after the ranks. Throws
/// ConfigError for another pattern, DataError for damaged files.
std::unique_ptr<HfTokenizer> load_tiktoken(const std::string& path, const TiktokenOptions& options);

}  // namespace colonnade::tokenizers
