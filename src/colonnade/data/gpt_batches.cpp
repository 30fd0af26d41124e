// See gpt_batches.h: the rows of a batch.
#include "colonnade/data/gpt_batches.h"

namespace colonnade::data {

GptBatches::GptBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan)
    : Batches(std::move(samples), plan.cyclic_step), plan_(plan) {}

HostBatch GptBatches::make(std::span<const std::int64_t> chosen, Masks masks) const {
  const bool with_masks = plan_.rules.reset_attention_mask && masks == Masks::kMade;
  const auto seq = static_cast<std::size_t>(plan_.seq_length);
  const std::size_t total = chosen.size() * seq;
  HostBatch batch;
  batch.seq = plan_.seq_length;
  batch.tokens.resize(total);
  batch.labels.resize(total);
  batch.position_ids.resize(total);
  batch.loss_mask.resize(total);
  if (with_masks) batch.attention_mask.resize(total * seq);
  std::vector<std::int64_t> text(seq + 1);
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    samples().tokens(chosen[row], plan_.rules.pad, text);
    const auto part = [&](auto& values) { return std::span(values).subspan(row * seq, seq); };
    const SampleView view{part(batch.tokens), part(batch.labels), part(batch.position_ids),
                          part(batch.loss_mask)};
    fill_sample(text, plan_.rules, view);
    check_vocabulary(view.tokens, plan_.vocab_size, chosen[row]);
    check_vocabulary(view.labels.last(1), plan_.vocab_size, chosen[row]);
    if (with_masks)
      fill_attention_mask(view.tokens, plan_.rules,
                          std::span(batch.attention_mask).subspan(row * seq * seq, seq * seq));
  }
  return batch;
}

}  // namespace colonnade::data
