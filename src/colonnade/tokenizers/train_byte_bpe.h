// Training of byte-level BPE tokenizers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/tokenizers/split_patterns.h"
#include "colonnade/tokenizers/training_texts.h"

namespace colonnade::tokenizers {

struct ByteBpeTraining {
  std::int64_t vocab_size = 0;  ///< includes the 256 bytes and the special tokens
  SplitPattern pattern = SplitPattern::kGpt2;
  std::int64_t min_frequency = 0;  ///< minimum frequency of a pair to be merged
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
};

/// Trains on all texts and returns a tokenizer.json. Memory grows with the number of distinct words: only
/// words and their counts are held. Of pairs with equal counts the one with the smaller ids is merged first,
/// so the same texts give the same bytes, and the vocabulary and merges of Hugging Face's BpeTrainer. Too
/// little text gives a smaller vocabulary. Throws ConfigError for a vocabulary smaller than the bytes and
/// special tokens, DataError if there is no text or one is not UTF-8.
std::string train_byte_bpe(const NextText& next, const ByteBpeTraining& training);

}  // namespace colonnade::tokenizers
