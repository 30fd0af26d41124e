// Samples of a T5: text with spans replaced by sentinels, and what the spans were.
// Source: Megatron's core/datasets/t5_dataset.py (T5MaskedWordPieceDataset).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "colonnade/data/samples/masked_tokens.h"
#include "colonnade/data/samples/sentence_dataset.h"
#include "colonnade/data/samples/t5/t5_ids.h"

namespace colonnade::data {

/// What decides the samples, besides the data.
struct T5Plan {
  std::int64_t encoder_length = 0;  ///< S
  std::int64_t decoder_length = 0;  ///< D
  SentencePlan sentences;           ///< its max_length is S - 2: Megatron leaves room for a bos and an eos
  MaskRules masking;                ///< its cls and sep are those of `ids`
  T5Ids ids;
};

/// Samples of one data set. The numbers of a sample are S + 2 D: of text a b c d e whose words b and d e are
/// masked (sentinels X, Y)
///   the encoder's tokens   [S]: a X c Y, then the pad
///   the decoder's tokens   [D]: bos X b Y d e, then the pad
///   the decoder's labels   [D]: X b Y d e eos, then -1
/// Spans of sample i are drawn from numpy.random.RandomState(seed + i).
class T5Dataset final : public SentenceDataset {
 public:
  /// As SentenceDataset.
  T5Dataset(std::shared_ptr<const TokenSource> source, T5Plan plan, const IndexCache& cache, CacheKey key);

  /// Throws DataError where the masked spans are more than sentinels or do not fit the decoder.
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;

  struct Text {
    std::vector<std::int64_t> tokens;
    std::int64_t length = 0;  ///< what the sample was made for
    bool truncated = false;   ///< its sentences hold more tokens than that
  };
  /// A sample before it is masked. Throws DataError as SentenceDataset::sentences, and for ids that
  /// are no text's.
  [[nodiscard]] Text text(std::int64_t number) const;

 private:
  [[nodiscard]] DataError too_small(std::int64_t number, const std::vector<MaskedSpan>& spans) const;

  T5Plan plan_;
};

}  // namespace colonnade::data
