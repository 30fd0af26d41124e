// Samples of a BERT: text with hidden words, and whether its two parts stand in their order.
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

/// What decides the samples, besides the data.
struct BertPlan {
  std::int64_t length = 0;  ///< S
  /// Samples have two parts, swapped in every second (--bert-no-binary-head: off).
  bool sentence_order = false;
  /// Its max_length is S - 3, for cls and two sep; its min_sentences 2 with sentence_order, else 1.
  SentencePlan sentences;
  MaskRules masking;     ///< its cls, sep and continues are those of `ids`
  bool permute = false;  ///< further words trade places, as mask_spans says
  BertIds ids;
};

/// Samples of one data set. The numbers of a sample are 3 S + 2:
///   tokens  [S]: cls A sep, or cls A sep B sep, of which some are hidden, then the pad
///   types   [S]: 0 up to A's sep, 1 up to B's, then 0
///   labels  [S]: what a hidden token was, else -1
///   swapped [1]: 1 where A is what came second in the text
///   cut     [1]: 1 where the sentences hold more tokens than the sample
/// With sentence_order A is a drawn number of the sample's sentences and B the others, else A is all. Where
/// they are too long, tokens go from a drawn end of the longer (B of equals). Of hidden tokens 80 % become
/// mask, 10 % any id below `words`, 10 % stay. All draws of sample i are of numpy.random.RandomState(seed +
/// i), but that with `permute` lengths are of another such: Megatron takes them of NumPy's global one, whose
/// state depends on all that ran before.
class BertDataset final : public SentenceDataset {
 public:
  /// As SentenceDataset.
  BertDataset(std::shared_ptr<const TokenSource> source, BertPlan plan, const IndexCache& cache,
              CacheKey key);

  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;

  /// A sample before tokens are hidden.
  struct Text {
    std::vector<std::int64_t> tokens;  ///< cls A sep, or cls A sep B sep
    std::int64_t first = 0;            ///< tokens up to A's sep
    std::int64_t length = 0;           ///< what the sample was made for, without cls and sep
    bool swapped = false;
    bool cut = false;
  };
  /// Throws DataError as SentenceDataset::sentences, and for ids that are no text's.
  [[nodiscard]] Text text(std::int64_t number) const;

 private:
  [[nodiscard]] Text text(std::int64_t number, RandomState& random) const;
  [[nodiscard]] RandomState random_of(std::int64_t number) const;

  BertPlan plan_;
};

}  // namespace colonnade::data
