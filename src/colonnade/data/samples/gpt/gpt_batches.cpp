// See gpt_batches.h.
#include "colonnade/data/samples/gpt/gpt_batches.h"

#include <algorithm>

namespace colonnade::data {

GptBatches::GptBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan)
    : Batches(std::move(samples), plan.cyclic_step), plan_(plan) {}

HostBatch GptBatches::make(std::span<const std::int64_t> chosen) const {
  const auto seq = static_cast<std::size_t>(plan_.seq_length);
  const std::size_t total = chosen.size() * seq;
  HostBatch batch;
  batch.seq = plan_.seq_length;
  batch.tokens.resize(total + 1);
  batch.labels.resize(total);
  if (plan_.rules.reset_position_ids || plan_.documents == DocumentSeparators::kSequences)
    batch.position_ids.resize(total);
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    const auto row_of = [&](auto& values) {
      return values.empty() ? std::span(values) : std::span(values).subspan(row * seq, seq);
    };
    // Tokens are read in place: the last one is only a label, and the next row overwrites it.
    const std::span<std::int64_t> text = std::span(batch.tokens).subspan(row * seq, seq + 1);
    samples().tokens(chosen[row], plan_.rules.pad, text);
    if (batch.loss_mask.empty() && has_masked_loss(text, plan_.rules)) batch.loss_mask.assign(total, 1.0F);
    // Before pads become token 0, which may be an end of document.
    if (plan_.documents == DocumentSeparators::kEnds)
      add_document_starts(text.first(seq), plan_.rules.eod, static_cast<std::int64_t>(row * seq),
                          batch.cu_seqlens);
    const SampleView view{row_of(batch.tokens), row_of(batch.labels), row_of(batch.position_ids),
                          row_of(batch.loss_mask)};
    fill_sample(text, plan_.rules, view);
    check_vocabulary(view.tokens, plan_.vocab_size, chosen[row]);
    check_vocabulary(view.labels.last(1), plan_.vocab_size, chosen[row]);
    if (plan_.documents == DocumentSeparators::kSequences) add_sequences(chosen[row], row, batch);
  }
  if (plan_.documents != DocumentSeparators::kNone)
    batch.cu_seqlens.push_back(static_cast<std::int64_t>(total));
  batch.tokens.resize(total);
  return batch;
}

void GptBatches::add_sequences(std::int64_t sample, std::size_t row, HostBatch& batch) const {
  const std::int64_t seq = plan_.seq_length, first = static_cast<std::int64_t>(row) * seq;
  // Padding at the end of the data belongs to the last document.
  std::int64_t at = 0, begin = 0;
  std::vector<SampleSpan> spans = samples().spans(sample);
  spans.push_back({.length = seq});
  for (const SampleSpan& span : spans) {
    const bool starts = at < seq && span.length > 0 && &span != &spans.back();
    if (starts) batch.cu_seqlens.push_back(first + at);
    if (starts) begin = at;
    for (const std::int64_t end = std::min(at + span.length, seq); at < end; ++at)
      batch.position_ids[static_cast<std::size_t>(first + at)] = at - begin;
  }
}

}  // namespace colonnade::data
