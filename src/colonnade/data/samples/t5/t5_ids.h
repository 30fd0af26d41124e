// The ids that T5's samples are built with.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/data/text_ids.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::data {

/// What the data must know of the tokenizer; -1: there is none.
struct T5Ids {
  std::int64_t vocab_size = 0;          ///< ids are 0 to vocab_size - 1; 0: not checked
  std::int64_t text_end = 0;            ///< ids of text are below it; 0: not checked
  std::int64_t bos = -1;                ///< the decoder's first input
  std::int64_t eos = -1;                ///< the decoder's last label
  std::int64_t pad = -1;                ///< fills rows that the sample does not; -1 collides with no token
  std::int64_t cls = -1, sep = -1;      ///< never masked
  std::vector<std::int64_t> sentinels;  ///< one for each masked span of a sample, in this order

  [[nodiscard]] TextIds text_ids() const { return {text_end > 0 ? text_end : vocab_size, vocab_size}; }
};

/// The ids of a run whose --vocab-size, which includes the sentinels, is `vocab_size`.
///   No tokenizer (--mock-data), or one whose text is numbers: the last `vocab_extra_ids` ids are the
///   sentinels, the id before them is the end of document, which serves as eos and bos; there is no pad.
///   A SentencePiece model: sentinel i is its piece <extra_id_i>, or the next id behind its pieces where it
///   has none such, as Megatron adds them; vocab_extra_ids of them, and with 0 as many as it has. eos and pad
///   are the model's; so is bos, else pad (from which T5 decodes), else eos.
/// Throws ConfigError where that leaves no sentinels, or ids that the vocabulary does not hold.
T5Ids t5_ids(const tokenizers::Tokenizer* tokenizer, std::int64_t vocab_size, std::int64_t vocab_extra_ids);

}  // namespace colonnade::data
