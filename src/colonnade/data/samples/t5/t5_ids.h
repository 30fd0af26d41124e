// Special ids of T5's samples.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/data/text_ids.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::data {

/// Special ids of the tokenizer that the data need; -1: none.
struct T5Ids {
  std::int64_t vocab_size = 0;          ///< exclusive upper bound of ids; 0: not checked
  std::int64_t text_end = 0;            ///< exclusive upper bound of ids in text; 0: not checked
  std::int64_t bos = -1;                ///< first input of the decoder
  std::int64_t eos = -1;                ///< last label of the decoder
  std::int64_t pad = -1;                ///< pads short samples; -1 equals no token
  std::int64_t cls = -1, sep = -1;      ///< never masked
  std::vector<std::int64_t> sentinels;  ///< one per masked span of a sample, in this order

  [[nodiscard]] TextIds text_ids() const { return {text_end > 0 ? text_end : vocab_size, vocab_size}; }
};

/// The ids of a run with --vocab-size `vocab_size`, which includes the sentinels.
///   Without a tokenizer (--mock-data), or with one for numeric text: the last `vocab_extra_ids` ids are the
///   sentinels; the id before them is the end of document and serves as eos and bos; there is no pad.
///   With a SentencePiece model: sentinel i is its piece <extra_id_i>, or else the next id after its pieces,
///   as in Megatron. There are vocab_extra_ids of them; 0 means those of the model. eos and pad are the
///   model's; bos is the model's, else pad (from which T5 decodes), else eos.
/// Throws ConfigError if there are no sentinels, or if the vocabulary does not hold the ids.
T5Ids t5_ids(const tokenizers::Tokenizer* tokenizer, std::int64_t vocab_size, std::int64_t vocab_extra_ids);

}  // namespace colonnade::data
