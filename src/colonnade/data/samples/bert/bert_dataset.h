// Samples of BERT: masked text and the sentence order label.
// Source: Megatron's core/datasets/bert_dataset.py (BERTMaskedWordPieceDataset).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "colonnade/data/samples/bert/bert_ids.h"
#include "colonnade/data/samples/masked_tokens.h"
#include "colonnade/data/samples/sentence_dataset.h"

namespace colonnade::data {

/// Parameters of the samples, besides the data.
struct BertPlan {
  std::int64_t length = 0;  ///< S
  /// Samples have two segments, swapped with probability 1/2; off with --bert-no-binary-head.
  bool sentence_order = false;
  /// max_length is S - 3, for cls and two sep; min_sentences is 2 with sentence_order, else 1.
  SentencePlan sentences;
  MaskRules masking;     ///< with the cls, sep and continues_word of `ids`
  bool permute = false;  ///< also permutes unmasked words, see mask_spans
  BertIds ids;
};

/// Samples of one data set. A sample consists of 3 S + 2 values:
///   tokens  [S]: cls A sep, or cls A sep B sep, partly masked, then padding
///   types   [S]: 0 up to A's sep, 1 up to B's, then 0
///   labels  [S]: the original id of a masked token, else -1
///   swapped [1]: 1 if segment A came second in the text
///   cut     [1]: 1 if the sentences have more tokens than the sample
/// With sentence_order A is a random number of the sample's sentences and B the rest, else A is all of them.
/// Overlong samples lose tokens from a random end of the longer segment (B on a tie). Of the masked tokens 80
/// % become the mask id, 10 % a random id below `words`, 10 % are kept. Sample i draws from
/// numpy.random.RandomState(seed + i); with `permute` span lengths come from a second such generator, where
/// Megatron uses NumPy's global one, whose state depends on everything that ran before.
class BertDataset final : public SentenceDataset {
 public:
  /// See SentenceDataset.
  BertDataset(std::shared_ptr<const TokenSource> source, BertPlan plan, const IndexCache& cache,
              CacheKey key);

  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;

  /// A sample before masking.
  struct Text {
    std::vector<std::int64_t> tokens;  ///< cls A sep, or cls A sep B sep
    std::int64_t first = 0;            ///< number of tokens up to A's sep
    std::int64_t length = 0;           ///< target length, without cls and sep
    bool swapped = false;
    bool truncated = false;
  };
  /// Throws DataError like SentenceDataset::sentences, and for ids that are not allowed in text.
  [[nodiscard]] Text text(std::int64_t number) const;

 private:
  [[nodiscard]] Text text(std::int64_t number, RandomState& random) const;
  [[nodiscard]] RandomState random_of(std::int64_t number) const;

  BertPlan plan_;
};

}  // namespace colonnade::data
