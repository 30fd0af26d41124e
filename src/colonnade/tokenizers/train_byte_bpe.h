// Training of byte-level BPE tokenizers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/tokenizers/cut_rules.h"
#include "colonnade/tokenizers/training_texts.h"

namespace colonnade::tokenizers {

struct ByteBpeTraining {
  std::int64_t vocab_size = 0;  ///< with the 256 bytes and the special tokens
  SplitRule rule = SplitRule::kGpt2;
  std::int64_t min_count = 0;  ///< of a pair that becomes a token
  std::vector<std::string> special = {"<|endoftext|>"};
};

/// Trains on all texts and returns a tokenizer.json. Of texts their words and how often each is there are
/// kept, so that memory grows with the words. Of pairs with equal counts the one with the smaller ids is
/// merged first, so that the same texts give the same bytes, and the vocabulary and merges of Hugging Face's
/// BpeTrainer. Texts too small for the vocabulary give a smaller one. Throws ConfigError for a vocabulary
/// smaller than the bytes and special tokens, DataError for no text, and for one that is not
/// UTF-8.
std::string train_byte_bpe(const NextText& next, const ByteBpeTraining& training);

}  // namespace colonnade::tokenizers
