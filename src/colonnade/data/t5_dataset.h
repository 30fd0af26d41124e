// Samples of a T5: text with spans replaced by sentinels, and what the spans were.
// Source: Megatron's core/datasets/t5_dataset.py (T5MaskedWordPieceDataset).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "colonnade/data/index_cache.h"
#include "colonnade/data/masked_tokens.h"
#include "colonnade/data/sample_source.h"
#include "colonnade/data/sentence_index.h"
#include "colonnade/data/t5_ids.h"
#include "colonnade/data/token_source.h"

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
/// Spans of sample i are drawn from numpy.random.RandomState(seed + i). Memory: the index, mapped from the
/// cache where there is one.
class T5Dataset final : public SampleSource {
 public:
  /// `identity` tells this state of the data from any other (path, size, time of change); the plan is added
  /// to it. Throws DataError as build_sentence_index.
  T5Dataset(std::shared_ptr<const TokenSource> source, T5Plan plan, const IndexCache& cache,
            const std::string& identity);

  [[nodiscard]] std::int64_t size() const override { return index_.sample.rows(); }
  /// Throws DataError where the masked spans are more than sentinels or do not fit the decoder.
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override { return source_->name(); }
  [[nodiscard]] std::vector<SampleOrder> orders() const override;
  [[nodiscard]] const SentenceIndex& index() const { return index_; }
  /// Of the part of the data set that is used.
  [[nodiscard]] std::int64_t documents() const { return plan_.sentences.documents.size(); }

  struct Text {
    std::vector<std::int64_t> tokens;
    std::int64_t length = 0;  ///< what the sample was made for
    bool truncated = false;   ///< its sentences hold more tokens than that
  };
  /// A sample before it is masked. Throws DataError for a number that does not exist and for an index that
  /// does not belong to the data.
  [[nodiscard]] Text text(std::int64_t number) const;

 private:
  [[nodiscard]] DataError too_small(std::int64_t number, const std::vector<MaskedSpan>& spans) const;

  std::shared_ptr<const TokenSource> source_;
  T5Plan plan_;
  SentenceIndex index_;
};

}  // namespace colonnade::data
