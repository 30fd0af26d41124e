// See gpt_batches.h: from sample numbers to batches.
#include "colonnade/data/gpt_batches.h"

#include <algorithm>
#include <numeric>

#include "colonnade/base/error.h"

namespace colonnade::data {

std::int64_t last_iteration(const config::Training& t, const SoFar& done) {
  if (t.train_iters) return t.skip_train ? std::max(*t.train_iters, done.iteration) : *t.train_iters;
  const std::int64_t left = std::max<std::int64_t>(t.train_samples.value_or(0) - done.samples, 0);
  return done.iteration + left / t.global_batch_size;
}

std::int64_t evaluations(const config::Training& t, std::int64_t iteration) {
  if (!t.eval_interval || *t.eval_interval < 1) return t.skip_train ? 1 : 0;
  const bool one_at_the_end = iteration % *t.eval_interval > 0 || iteration == 0;
  return iteration / *t.eval_interval + (one_at_the_end ? 1 : 0);
}

std::array<std::int64_t, 3> sample_counts(const config::Training& training, const SoFar& done) {
  const std::int64_t batch = training.global_batch_size;
  COL_CHECK(batch > 0, "sample_counts: the global batch size must be derived first; got {}", batch);
  const std::int64_t train = training.train_samples.value_or(training.train_iters.value_or(0) * batch);
  const bool validates = training.eval_interval && *training.eval_interval > 0;
  const std::int64_t regular = validates ? last_iteration(training, done) / *training.eval_interval : 0;
  return {train, (regular + 1) * training.eval_iters * batch, training.eval_iters * batch};
}

GptBatches::GptBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan)
    : samples_(std::move(samples)), plan_(plan) {}

std::shared_ptr<const GptBatches::Epoch> GptBatches::epoch(const CyclicOrder& cyclic,
                                                           std::int64_t number) const {
  const std::lock_guard lock(mutex_);
  if (epoch_ == nullptr || epoch_->number != number)
    epoch_ = std::make_shared<const Epoch>(Epoch{number, cyclic.order(number)});
  return epoch_;
}

std::int64_t GptBatches::sample_of(std::int64_t number) const {
  if (plan_.cyclic_step == 0) return number;
  COL_CHECK(number >= 0, "GptBatches: sample numbers start at 0; got {}", number);
  const CyclicOrder cyclic(samples_->size(), plan_.cyclic_step);
  return epoch(cyclic, cyclic.epoch(number))->order[static_cast<std::size_t>(cyclic.position(number))];
}

HostBatch GptBatches::get(std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return get(numbers);
}

HostBatch GptBatches::get(std::span<const std::int64_t> numbers, Masks masks) const {
  const bool with_masks = plan_.rules.reset_attention_mask && masks == Masks::kMade;
  const auto seq = static_cast<std::size_t>(plan_.seq_length);
  const std::size_t total = numbers.size() * seq;
  HostBatch batch;
  batch.micro_batch = static_cast<std::int64_t>(numbers.size());
  batch.seq = plan_.seq_length;
  batch.tokens.resize(total);
  batch.labels.resize(total);
  batch.position_ids.resize(total);
  batch.loss_mask.resize(total);
  if (with_masks) batch.attention_mask.resize(total * seq);
  std::vector<std::int64_t> text(seq + 1);
  for (std::size_t row = 0; row < numbers.size(); ++row) {
    const std::int64_t sample = sample_of(numbers[row]);
    batch.samples.push_back(numbers[row]);
    samples_->tokens(sample, plan_.rules.pad, text);
    const auto part = [&](auto& values) { return std::span(values).subspan(row * seq, seq); };
    const SampleView view{part(batch.tokens), part(batch.labels), part(batch.position_ids),
                          part(batch.loss_mask)};
    fill_sample(text, plan_.rules, view);
    if (plan_.vocab_size > 0) {
      const auto outside = [this](std::int64_t id) { return id < 0 || id >= plan_.vocab_size; };
      const std::int64_t* bad = std::find_if(view.tokens.data(), view.tokens.data() + seq, outside);
      if (bad == view.tokens.data() + seq && outside(view.labels[seq - 1])) bad = &view.labels[seq - 1];
      if (bad != view.tokens.data() + seq)
        throw DataError(fmt::format(
            "{}: token ids must be below the vocabulary size {}; got {} in sample {}; the data was made "
            "with another tokenizer, give that one or --vocab-size",
            samples_->name(), plan_.vocab_size, *bad, sample));
    }
    if (with_masks)
      fill_attention_mask(view.tokens, plan_.rules,
                          std::span(batch.attention_mask).subspan(row * seq * seq, seq * seq));
  }
  return batch;
}

}  // namespace colonnade::data
