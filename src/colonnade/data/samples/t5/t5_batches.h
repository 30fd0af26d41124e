// Batches of a T5, and opening its data.
#pragma once

#include <memory>
#include <span>

#include "colonnade/data/batches.h"
#include "colonnade/data/samples/t5/t5_ids.h"

namespace colonnade::data {

/// Batches of T5Dataset's samples. `tokens`, `labels` and `loss_mask` [b, D] are the decoder's; position_ids
/// and attention_mask are empty: the decoder is causal, and who sees the encoder's tokens is what
/// encoder_padding, all behind the text, does not hide. loss_mask is 1 on labels, 0 behind them, where
/// `labels` is 0. Pads become token 0. Source: Megatron's core/datasets/t5_dataset.py, whose labels without a
/// loss are -1.
class T5Batches final : public Batches {
 public:
  struct Plan {
    std::int64_t encoder_length = 0;
    std::int64_t decoder_length = 0;
    std::int64_t pad = -1;         ///< as T5Ids
    TextIds text;                  ///< T5Ids::text_ids()
    std::int64_t cyclic_step = 0;  ///< as Batches
  };
  T5Batches(std::shared_ptr<const SampleSource> samples, const Plan& plan);

  [[nodiscard]] TextIds text_ids() const override { return plan_.text; }

 private:
  [[nodiscard]] HostBatch make(std::span<const std::int64_t> chosen, Masks masks) const override;

  Plan plan_;
};

/// As open_gpt_batches, for the tokens that `ids` tells. Documents are split over train, valid and test, and
/// should consist of sentences (`colonnade preprocess` of texts that are lists of them); one sequence a
/// document does too. Spans have up to 10 tokens, in the geometric distribution, as Megatron trains T5; no
/// tokenizer here has pieces ("##...") that continue a word. Megatron has no mock data for T5: here it is
/// that of a GPT, ids below the sentinels, each sequence a document of one sentence.
Splits open_t5_batches(const config::Data& data, const config::Training& training, const T5Ids& ids,
                       const Wanted& wanted = {});

}  // namespace colonnade::data
