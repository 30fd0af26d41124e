// Samples of T5: text with masked spans replaced by sentinels, and the spans as decoder targets.
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

/// Parameters of the samples, besides the data.
struct T5Plan {
  std::int64_t encoder_length = 0;  ///< S
  std::int64_t decoder_length = 0;  ///< D
  SentencePlan sentences;           ///< max_length is S - 2: Megatron reserves space for a bos and an eos
  MaskRules masking;                ///< with the cls and sep of `ids`
  T5Ids ids;
};

/// Samples of one data set. A sample consists of S + 2 D values. For text a b c d e with masked spans b and d
/// e (sentinels X, Y):
///   encoder tokens   [S]: a X c Y, then padding
///   decoder tokens   [D]: bos X b Y d e, then padding
///   decoder labels   [D]: X b Y d e eos, then -1
/// The spans of sample i are drawn from numpy.random.RandomState(seed + i).
class T5Dataset final : public SentenceDataset {
 public:
  /// See SentenceDataset.
  T5Dataset(std::shared_ptr<const TokenSource> source, T5Plan plan, const IndexCache& cache, CacheKey key);

  /// Throws DataError if the masked spans outnumber the sentinels or do not fit the decoder.
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;

  struct Text {
    std::vector<std::int64_t> tokens;
    std::int64_t length = 0;  ///< target length
    bool truncated = false;   ///< the sentences have more tokens than that
  };
  /// A sample before masking. Throws DataError like SentenceDataset::sentences, and for ids that are not
  /// allowed in text.
  [[nodiscard]] Text text(std::int64_t number) const;

 private:
  [[nodiscard]] DataError capacity_error(std::int64_t number, const std::vector<MaskedSpan>& spans) const;

  T5Plan plan_;
};

}  // namespace colonnade::data
