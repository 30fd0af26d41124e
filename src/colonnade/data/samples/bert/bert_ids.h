// Special ids of BERT's samples.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/data/text_ids.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::data {

/// Special ids of the tokenizer that the data need; -1: none.
struct BertIds {
  std::int64_t vocab_size = 0;            ///< exclusive upper bound of ids; 0: not checked
  std::int64_t text_end = 0;              ///< exclusive upper bound of ids in text; 0: not checked
  std::int64_t words = 0;                 ///< ids 0 to words - 1 are random replacements of masked tokens
  std::int64_t cls = -1, sep = -1;        ///< before the text, and after each segment; never masked
  std::int64_t mask = -1;                 ///< replaces masked tokens
  std::int64_t pad = -1;                  ///< pads short samples; -1 equals no token
  std::vector<bool> continues_word = {};  ///< per id: continues a word ("##..."); false for missing ids

  [[nodiscard]] TextIds text_ids() const { return {text_end > 0 ? text_end : vocab_size, vocab_size}; }
};

/// The ids of a run with --vocab-size `vocab_size`; 0 means the tokenizer's vocabulary size.
///   Without a tokenizer (--mock-data), or with one for numeric text: the last four ids of the vocabulary are
///   pad, cls, sep and mask, in this order; text uses only the ids before them.
///   Other tokenizers: their tokens [CLS], [SEP], [MASK] and [PAD].
/// Throws ConfigError for a tokenizer without some of these, naming all that are missing, and for a
/// vocabulary that does not hold the ids.
BertIds bert_ids(const tokenizers::Tokenizer* tokenizer, std::int64_t vocab_size);

}  // namespace colonnade::data
