// Batches of T5 samples, and opening the data of T5.
#pragma once

#include <memory>
#include <span>

#include "colonnade/data/batches.h"
#include "colonnade/data/samples/t5/t5_ids.h"

namespace colonnade::data {

/// Batches of T5Dataset's samples. `tokens`, `labels` and `loss_mask` [b, D] belong to the decoder.
/// position_ids and cu_seqlens are empty: the decoder is causal, and encoder_padding, which covers
/// everything after the text, is the only mask on the encoder's tokens. loss_mask is 1 on labels and 0 after
/// them, where `labels` is 0. Pads become token 0. Source: Megatron's core/datasets/t5_dataset.py, where
/// labels without a loss are -1.
class T5Batches final : public Batches {
 public:
  struct Plan {
    std::int64_t encoder_length = 0;
    std::int64_t decoder_length = 0;
    std::int64_t pad = -1;         ///< T5Ids::pad
    TextIds text;                  ///< T5Ids::text_ids()
    std::int64_t cyclic_step = 0;  ///< see Batches
  };
  T5Batches(std::shared_ptr<const SampleSource> samples, const Plan& plan);

  [[nodiscard]] TextIds text_ids() const override { return plan_.text; }

 private:
  [[nodiscard]] HostBatch make(std::span<const std::int64_t> chosen) const override;

  Plan plan_;
};

/// Same as open_gpt_batches, with the special ids of `ids`. Documents are split over train, valid and test.
/// They should consist of sentences (`colonnade preprocess` of texts that are lists of sentences); documents
/// of one sequence work too. Masked spans have up to 10 tokens with geometrically distributed lengths, as in
/// Megatron; no tokenizer here has pieces ("##...") that continue a word. Megatron has no mock data for T5:
/// here it is that of GPT, with ids below the sentinels, and each sequence is a document of one sentence.
Splits open_t5_batches(const config::Data& data, const config::Training& training, const T5Ids& ids,
                       const DataRequest& wanted = {});

}  // namespace colonnade::data
