// Batches of a BERT, and opening its data.
#pragma once

#include <memory>
#include <span>

#include "colonnade/data/batches.h"
#include "colonnade/data/samples/bert/bert_ids.h"

namespace colonnade::data {

/// Batches of BertDataset's samples: `tokens`, `token_types`, `padding`, `labels` and `loss_mask` [b, S], and
/// `swapped` [b] where the plan has a sentence order. loss_mask is 1 on hidden tokens; elsewhere `labels` is
/// 0, as pads are in all of them, be it in the text. `padding` is what stands behind the text, whatever ids
/// are in it. position_ids and attention_mask are empty: all see all but the padding. Source: Megatron's
/// core/datasets/bert_dataset.py, whose labels without a loss are -1.
class BertBatches final : public Batches {
 public:
  struct Plan {
    std::int64_t length = 0;  ///< S
    bool sentence_order = false;
    std::int64_t pad = -1;         ///< as BertIds
    TextIds text;                  ///< BertIds::text_ids()
    std::int64_t cyclic_step = 0;  ///< as Batches
  };
  BertBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan);

  [[nodiscard]] TextIds text_ids() const override { return plan_.text; }

 private:
  [[nodiscard]] HostBatch make(std::span<const std::int64_t> chosen, Masks masks) const override;

  Plan plan_;
};

/// As open_gpt_batches, for the tokens that `ids` tells. Documents are split over train, valid and test, and
/// must consist of two or more sentences for `sentence_order` (`colonnade preprocess --split-sentences`).
/// Spans have up to three words, whose lengths n have a probability in proportion to 1 / n, as Megatron
/// trains BERT. Megatron has no mock data for BERT: here each sequence of a GPT's is a document of sentences
/// of 64 tokens, 10,000 of them, below the ids that `ids` sets apart.
Splits open_bert_batches(const config::Data& data, const config::Training& training, const BertIds& ids,
                         bool sentence_order, const Wanted& wanted = {});

}  // namespace colonnade::data
