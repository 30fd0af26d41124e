// Batches of BERT samples, and opening the data of BERT.
#pragma once

#include <memory>
#include <span>

#include "colonnade/data/batches.h"
#include "colonnade/data/samples/bert/bert_ids.h"

namespace colonnade::data {

/// Batches of BertDataset's samples: `tokens`, `token_types`, `padding`, `labels` and `loss_mask` are [b, S];
/// `swapped` [b] exists with sentence order. loss_mask is 1 on masked tokens; other labels are 0. Pad ids
/// become 0 in all tensors, even inside the text. `padding` marks the positions after the text, whatever
/// their ids. position_ids and cu_seqlens are empty: attention is bidirectional, with padding masked out.
/// Source: Megatron's core/datasets/bert_dataset.py, where labels without a loss are -1.
class BertBatches final : public Batches {
 public:
  struct Plan {
    std::int64_t length = 0;  ///< S
    bool sentence_order = false;
    std::int64_t pad = -1;         ///< BertIds::pad
    TextIds text;                  ///< BertIds::text_ids()
    std::int64_t cyclic_step = 0;  ///< see Batches
  };
  BertBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan);

  [[nodiscard]] TextIds text_ids() const override { return plan_.text; }

 private:
  [[nodiscard]] HostBatch make(std::span<const std::int64_t> chosen) const override;

  Plan plan_;
};

/// Same as open_gpt_batches, with the special ids of `ids`. Documents are split over train, valid and test;
/// with `sentence_order` they need two or more sentences (`colonnade preprocess --split-sentences`). Masked
/// spans have up to three words, with a probability proportional to 1 / n for n words, as in Megatron.
/// Megatron has no mock data for BERT: here each of the first 10,000 GPT mock sequences is a document of
/// 64-token sentences, with ids outside the special ones of `ids`.
Splits open_bert_batches(const config::Data& data, const config::Training& training, const BertIds& ids,
                         bool sentence_order, const DataRequest& wanted = {});

}  // namespace colonnade::data
