// The ids that BERT's samples are built with.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/data/text_ids.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::data {

/// What the data must know of the tokenizer; -1: there is none.
struct BertIds {
  std::int64_t vocab_size = 0;       ///< ids are 0 to vocab_size - 1; 0: not checked
  std::int64_t text_end = 0;         ///< ids of text are below it; 0: not checked
  std::int64_t words = 0;            ///< ids 0 to words - 1 are what a masked token may be replaced by
  std::int64_t cls = -1, sep = -1;   ///< stand before the text, and behind each of its parts; never masked
  std::int64_t mask = -1;            ///< stands where a token is hidden
  std::int64_t pad = -1;             ///< fills rows that the sample does not; -1 collides with no token
  std::vector<bool> continues = {};  ///< of each id: it continues a word ("##..."); missing ids do not

  [[nodiscard]] TextIds text_ids() const { return {text_end > 0 ? text_end : vocab_size, vocab_size}; }
};

/// The ids of a run with --vocab-size `vocab_size`, to which 0 gives the tokenizer's.
///   No tokenizer (--mock-data), or one whose text is numbers: the last four ids of the vocabulary are the
///   pad, cls, sep and mask, in this order; the ids before them are the text's alone.
///   Any other: its pieces [CLS], [SEP], [MASK] and [PAD], as BERT names them.
/// Throws ConfigError for a tokenizer that lacks some of these, all of which it names, and for a vocabulary
/// that does not hold the ids.
BertIds bert_ids(const tokenizers::Tokenizer* tokenizer, std::int64_t vocab_size);

}  // namespace colonnade::data
