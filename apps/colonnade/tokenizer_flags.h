// The tokenizer flags of all verbs that use a tokenizer.
#pragma once

#include <CLI/CLI.hpp>

#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::app {

/// All tokenizer flags except --tokenizer-type and --vocab-size, whose meaning depends on the verb.
inline constexpr const char* kTokenizerFlags[] = {
    "--tokenizer-model",  "--vocab-file",
    "--merge-file",       "--tokenizer-hf-no-include-special-tokens",
    "--tiktoken-pattern", "--tiktoken-num-special-tokens"};

inline void add_tokenizer_flags(CLI::App& app, tokenizers::TokenizerOptions& options) {
  app.add_option("--tokenizer-type", options.type,
                 "HuggingFaceTokenizer, GPT2BPETokenizer, SentencePieceTokenizer, GPTSentencePieceTokenizer, "
                 "Llama2Tokenizer, TikTokenizer, BertWordPieceLowerCase, BertWordPieceCase or NullTokenizer");
  app.add_option("--tokenizer-model", options.model,
                 "Tokenizer file (tokenizer.json, SentencePiece .model, tiktoken ranks), or its folder");
  app.add_option("--vocab-file", options.vocab_file,
                 "vocab.json of GPT2BPETokenizer, or vocab.txt of the BERT tokenizers");
  app.add_option("--merge-file", options.merge_file, "merges.txt of GPT2BPETokenizer");
  app.add_option("--vocab-size", options.vocab_size,
                 "Vocabulary size of NullTokenizer and of Megatron's tiktoken files");
  app.add_flag("!--tokenizer-hf-no-include-special-tokens", options.special_in_documents,
               "Do not add the special tokens of a HuggingFaceTokenizer folder to documents");
  app.add_option("--tiktoken-pattern", options.tiktoken_pattern,
                 "v1 or v2 (Megatron's .json), or gpt2, cl100k_base, o200k_base or llama3 (other files)");
  app.add_option("--tiktoken-num-special-tokens", options.tiktoken_num_special,
                 "Number of special tokens before the ranks of Megatron's tiktoken files")
      ->capture_default_str();
}

}  // namespace colonnade::app
