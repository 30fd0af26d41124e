// Batches of a GPT, and opening its data.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "colonnade/data/batches.h"
#include "colonnade/data/samples/gpt/gpt_dataset.h"
#include "colonnade/data/samples/gpt/gpt_sample.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::data {

/// What the data must know of the tokenizer.
struct TokenIds {
  std::int64_t vocab_size = 0;  ///< ids are 0 to vocab_size - 1; 0: not checked
  std::int64_t eod = -1;        ///< end of document; -1: none
  std::int64_t pad = -1;        ///< fills samples that the data cannot
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer = nullptr;  ///< of --fim-data, which reads texts
};

/// Batches of samples of S + 1 tokens: inputs and labels overlap by S.
class GptBatches final : public Batches {
 public:
  struct Plan {
    std::int64_t seq_length = 0;
    SampleRules rules;
    std::int64_t vocab_size = 0;   ///< as TokenIds
    std::int64_t cyclic_step = 0;  ///< as Batches
  };
  GptBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan);

  [[nodiscard]] TextIds text_ids() const override { return {plan_.vocab_size, plan_.vocab_size}; }

 private:
  [[nodiscard]] HostBatch make(std::span<const std::int64_t> chosen, Masks masks) const override;

  Plan plan_;
};

/// Opens the data of a run that is so far as `done`: --data-path with --split, or paths per split, or
/// --mock-data. Indices come from the cache folder or are built here, by whichever process comes first; no
/// rank waits in a collective. Throws ConfigError for settings that contradict each other, also where a split
/// that the run reads does not fill one epoch of cyclic, and DataError for missing or damaged data.
Splits open_gpt_batches(const config::Data& data, const config::Training& training, const TokenIds& ids,
                        const Wanted& wanted = {});

/// The sample sources alone, for `data inspect`. `counts`: samples wanted of each split.
std::array<std::shared_ptr<const SampleSource>, 3> open_gpt_samples(const config::Data& data,
                                                                    const Counts& counts,
                                                                    std::int64_t seq_length,
                                                                    std::int64_t seed, const TokenIds& ids);

}  // namespace colonnade::data
