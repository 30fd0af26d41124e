// Batches of GPT samples, and opening the data of GPT.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "colonnade/data/batches.h"
#include "colonnade/data/samples/gpt/gpt_dataset.h"
#include "colonnade/data/samples/gpt/gpt_sample.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::data {

/// Special ids of the tokenizer that the data need.
struct TokenIds {
  std::int64_t vocab_size = 0;  ///< exclusive upper bound of ids; 0: not checked
  std::int64_t eod = -1;        ///< end of document; -1: none
  std::int64_t pad = -1;        ///< pads samples at the end of the data
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer = nullptr;  ///< required by --fim-data
};

/// Separators of the documents of a sample.
enum class DocumentSeparators {
  kNone,       ///< nothing: tokens attend to all earlier ones
  kEnds,       ///< end-of-document tokens (--reset-attention-mask)
  kSequences,  ///< starts of the data's sequences, where positions restart
               ///< (--dataloader-inter-document-masking)
};

/// Batches of samples of S + 1 tokens: labels are the inputs shifted by one.
class GptBatches final : public Batches {
 public:
  struct Plan {
    std::int64_t seq_length = 0;
    SampleRules rules;
    DocumentSeparators documents = DocumentSeparators::kNone;
    std::int64_t vocab_size = 0;   ///< see TokenIds
    std::int64_t cyclic_step = 0;  ///< see Batches
  };
  GptBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan);

  [[nodiscard]] TextIds text_ids() const override { return {plan_.vocab_size, plan_.vocab_size}; }

 private:
  [[nodiscard]] HostBatch make(std::span<const std::int64_t> chosen) const override;
  /// Appends the starts of the data's sequences in a sample's row to the batch, and writes positions from
  /// them. Source: Megatron's core/datasets/gpt_dataset.py (inter_document_masking).
  void add_sequences(std::int64_t sample, std::size_t row, HostBatch& batch) const;

  Plan plan_;
};

/// Opens the data of a run whose progress is `wanted.done`: --data-path with --split, or paths per split, or
/// --mock-data. Indices come from the cache or are built by the first process that needs them; no rank waits
/// in a collective. Throws ConfigError for contradicting settings and for a split without a full cyclic epoch
/// that the run reads, and DataError for missing or damaged data.
Splits open_gpt_batches(const config::Data& data, const config::Training& training, const TokenIds& ids,
                        const DataRequest& wanted = {});

/// The sample sources without batches, for `data inspect`. `counts` are the requested samples of each split.
std::array<std::shared_ptr<const SampleSource>, 3> open_gpt_samples(const config::Data& data,
                                                                    const SampleCounts& counts,
                                                                    std::int64_t seq_length,
                                                                    std::int64_t seed, const TokenIds& ids);

}  // namespace colonnade::data
