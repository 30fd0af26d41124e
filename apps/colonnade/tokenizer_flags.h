// The flags that choose a tokenizer, for every verb that needs one.
#pragma once

#include <CLI/CLI.hpp>

#include "colonnade/data/tokenizer.h"

namespace colonnade::app {

inline void add_tokenizer_flags(CLI::App& app, data::TokenizerOptions& options) {
  app.add_option("--tokenizer-type", options.type,
                 "NullTokenizer, SentencePieceTokenizer, GPTSentencePieceTokenizer or Llama2Tokenizer");
  app.add_option("--tokenizer-model", options.model,
                 "SentencePiece .model file, or a folder with tokenizer.model");
  app.add_option("--vocab-size", options.vocab_size, "Ids of the NullTokenizer");
}

}  // namespace colonnade::app
