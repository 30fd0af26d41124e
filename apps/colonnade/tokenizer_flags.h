// The flags that choose a tokenizer, for every verb that needs one.
#pragma once

#include <CLI/CLI.hpp>

#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::app {

/// All but --tokenizer-type and --vocab-size, which have a meaning of their own for some verbs.
inline constexpr const char* kOfTokenizers[] = {
    "--tokenizer-model",  "--vocab-file",
    "--merge-file",       "--tokenizer-hf-no-include-special-tokens",
    "--tiktoken-pattern", "--tiktoken-num-special-tokens"};

inline void add_tokenizer_flags(CLI::App& app, tokenizers::TokenizerOptions& options) {
  app.add_option("--tokenizer-type", options.type,
                 "HuggingFaceTokenizer, GPT2BPETokenizer, SentencePieceTokenizer, GPTSentencePieceTokenizer, "
                 "Llama2Tokenizer, TikTokenizer, BertWordPieceLowerCase, BertWordPieceCase or NullTokenizer");
  app.add_option(
      "--tokenizer-model", options.model,
      "The tokenizer's file (tokenizer.json, SentencePiece .model, ranks of tiktoken), or its folder");
  app.add_option("--vocab-file", options.vocab_file, "vocab.json of GPT2BPETokenizer, vocab.txt of BERT's");
  app.add_option("--merge-file", options.merge_file, "merges.txt of GPT2BPETokenizer");
  app.add_option("--vocab-size", options.vocab_size,
                 "Ids of NullTokenizer, and of Megatron's tiktoken files");
  app.add_flag("!--tokenizer-hf-no-include-special-tokens", options.special_in_documents,
               "Data keep the ids of the text alone, where a folder of HuggingFaceTokenizer says otherwise");
  app.add_option("--tiktoken-pattern", options.tiktoken_pattern,
                 "v1 or v2 (Megatron's .json), gpt2, cl100k_base, o200k_base or llama3 (other files)");
  app.add_option("--tiktoken-num-special-tokens", options.tiktoken_num_special,
                 "Special tokens in front of Megatron's tiktoken files")
      ->capture_default_str();
}

}  // namespace colonnade::app
