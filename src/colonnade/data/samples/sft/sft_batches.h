// Batches of chat data for supervised fine-tuning of GPT.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "colonnade/data/batches.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::data {

/// Batches of samples of S + 1 flagged tokens (sft_conversations.h). A label has a loss if it belongs to an
/// answer of the same conversation.
class SftBatches final : public Batches {
 public:
  struct Plan {
    std::int64_t seq_length = 0;
    bool separate = false;         ///< each conversation starts at position 0 and attends only to itself
    std::int64_t vocab_size = 0;   ///< exclusive upper bound of ids; 0: not checked
    std::int64_t cyclic_step = 0;  ///< see Batches
  };
  SftBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan);

 private:
  [[nodiscard]] HostBatch make(std::span<const std::int64_t> chosen) const override;

  Plan plan_;
};

/// Throws ConfigError if a token of the --sft-tokenizer-prompt-format is not in the vocabulary: split into
/// pieces it would be learned as text.
void require_chat_tokens(const std::string& format, const tokenizers::Tokenizer& tokenizer);

/// Same as open_gpt_batches, for --sft: paths name files of chat messages or folders of them. Samples are
/// packed if conversations are separate (config::Data::packs_conversations), and hold one conversation
/// otherwise.
Splits open_sft_batches(const config::Data& data, const config::Training& training,
                        const tokenizers::Tokenizer& tokenizer, std::int64_t vocab_size,
                        const DataRequest& wanted = {});

}  // namespace colonnade::data
