// Batches of chat data: supervised fine-tuning of a GPT.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "colonnade/data/batches.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::data {

/// Batches of samples of S + 1 marked tokens (sft_conversations.h). The loss counts where the label belongs
/// to an answer of the same conversation.
class SftBatches final : public Batches {
 public:
  struct Plan {
    std::int64_t seq_length = 0;
    bool apart = false;            ///< conversations begin at position 0 and do not see each other
    std::int64_t vocab_size = 0;   ///< ids are below it; 0: not checked
    std::int64_t cyclic_step = 0;  ///< as Batches
  };
  SftBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan);

 private:
  [[nodiscard]] HostBatch make(std::span<const std::int64_t> chosen, Masks masks) const override;

  Plan plan_;
};

/// Throws ConfigError where marks of a --sft-tokenizer-prompt-format are no tokens: as text they would be
/// learnt letter by letter.
void require_marks(const std::string& format, const tokenizers::Tokenizer& tokenizer);

/// As open_gpt_batches, for --sft: paths are files of chat messages or folders of them. Samples are packed
/// where both --reset-position-ids and --reset-attention-mask keep conversations apart, and hold one
/// otherwise.
Splits open_sft_batches(const config::Data& data, const config::Training& training,
                        const tokenizers::Tokenizer& tokenizer, std::int64_t vocab_size,
                        const Wanted& wanted = {});

}  // namespace colonnade::data
