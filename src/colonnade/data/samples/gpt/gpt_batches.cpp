// See gpt_batches.h.
#include "colonnade/data/samples/gpt/gpt_batches.h"

namespace colonnade::data {

GptBatches::GptBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan)
    : Batches(std::move(samples), plan.cyclic_step), plan_(plan) {}

HostBatch GptBatches::make(std::span<const std::int64_t> chosen, AttentionMasks masks) const {
  const bool with_masks = plan_.rules.reset_attention_mask && masks == AttentionMasks::kBuilt;
  const auto seq = static_cast<std::size_t>(plan_.seq_length);
  const std::size_t total = chosen.size() * seq;
  HostBatch batch;
  batch.seq = plan_.seq_length;
  batch.tokens.resize(total + 1);
  batch.labels.resize(total);
  if (plan_.rules.reset_position_ids) batch.position_ids.resize(total);
  if (with_masks) batch.attention_mask.resize(total * seq);
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    const auto row_of = [&](auto& values) {
      return values.empty() ? std::span(values) : std::span(values).subspan(row * seq, seq);
    };
    // Tokens are read in place: the last one is only a label, and the next row overwrites it.
    const std::span<std::int64_t> text = std::span(batch.tokens).subspan(row * seq, seq + 1);
    samples().tokens(chosen[row], plan_.rules.pad, text);
    if (batch.loss_mask.empty() && has_masked_loss(text, plan_.rules)) batch.loss_mask.assign(total, 1.0F);
    const SampleView view{row_of(batch.tokens), row_of(batch.labels), row_of(batch.position_ids),
                          row_of(batch.loss_mask)};
    fill_sample(text, plan_.rules, view);
    check_vocabulary(view.tokens, plan_.vocab_size, chosen[row]);
    check_vocabulary(view.labels.last(1), plan_.vocab_size, chosen[row]);
    if (with_masks)
      fill_attention_mask(view.tokens, plan_.rules,
                          std::span(batch.attention_mask).subspan(row * seq * seq, seq * seq));
  }
  batch.tokens.resize(total);
  return batch;
}

}  // namespace colonnade::data
