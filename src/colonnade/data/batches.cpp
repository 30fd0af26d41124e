// See batches.h: batches from sample numbers, and the sample counts of a run.
#include "colonnade/data/batches.h"

#include <algorithm>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/data/out_of_vocabulary.h"
#include "colonnade/kernels/cpu/vector.h"

namespace colonnade::data {

std::int64_t last_iteration(const config::Training& t, const RunProgress& done) {
  if (t.train_iters) return t.skip_train ? std::max(*t.train_iters, done.iteration) : *t.train_iters;
  return done.iteration + config::batch_schedule(t).steps_within(done.samples, t.train_samples.value_or(0));
}

std::int64_t evaluations(const config::Training& t, std::int64_t iteration) {
  if (!t.eval_interval || *t.eval_interval < 1) return t.skip_train ? 1 : 0;
  const std::int64_t interval = *t.eval_interval, start = t.start_eval_at_iter.value_or(0);
  const std::int64_t left_out = start < 1 ? 0 : (start - 1) / interval;
  const bool one_at_the_end = iteration % interval > 0 || iteration == 0 || iteration < start;
  return std::max<std::int64_t>(iteration / interval - left_out, 0) + (one_at_the_end ? 1 : 0);
}

SampleCounts sample_counts(const config::Training& training, const RunProgress& done) {
  const std::int64_t batch = training.global_batch_size;
  COL_CHECK(batch > 0, "sample_counts: the global batch size must be derived first; got {}", batch);
  const std::int64_t train = training.train_samples.value_or(training.train_iters.value_or(0) * batch);
  const bool validates = training.eval_interval && *training.eval_interval > 0;
  const std::int64_t last = last_iteration(training, done);
  std::int64_t validations = 1;
  if (validates) {
    const std::int64_t left_out = training.start_eval_at_iter.value_or(0) / *training.eval_interval;
    validations = std::max(last / *training.eval_interval + 1 - left_out, evaluations(training, last));
  }
  const std::int64_t test = training.eval_iters * config::eval_batch_size(training);
  if (training.full_validation) return {train, std::nullopt, test};
  return {train, validations * test, test};
}

SampleCounts sample_counts(const config::Training& training, const DataRequest& wanted) {
  return wanted.counts ? *wanted.counts : sample_counts(training, wanted.done);
}

Batches::Batches(std::shared_ptr<const SampleSource> samples, std::int64_t cyclic_step)
    : samples_(std::move(samples)), cyclic_step_(cyclic_step) {}

std::shared_ptr<const Batches::Epoch> Batches::epoch(const CyclicOrder& cyclic, std::int64_t number) const {
  const std::lock_guard lock(mutex_);
  if (epoch_ == nullptr || epoch_->number != number)
    epoch_ = std::make_shared<const Epoch>(Epoch{number, cyclic.order(number)});
  return epoch_;
}

std::int64_t Batches::sample_of(std::int64_t number) const {
  if (cyclic_step_ == 0) return number;
  COL_CHECK(number >= 0, "Batches: sample numbers start at 0; got {}", number);
  const CyclicOrder cyclic(samples_->size(), cyclic_step_);
  return epoch(cyclic, cyclic.epoch(number))->order[static_cast<std::size_t>(cyclic.position(number))];
}

HostBatch Batches::get(std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return get(numbers);
}

HostBatch Batches::get(std::span<const std::int64_t> numbers) const {
  std::vector<std::int64_t> samples;
  for (const std::int64_t number : numbers) samples.push_back(sample_of(number));
  HostBatch batch = make(samples);
  batch.micro_batch = static_cast<std::int64_t>(numbers.size());
  batch.samples.assign(numbers.begin(), numbers.end());
  return batch;
}

namespace {

/// Whether all ids are in [0, end); vectorized.
COL_CLONES bool all_below(std::span<const std::int64_t> ids, std::int64_t end) {
  std::uint64_t all = 0;
  for (const std::int64_t id : ids)
    all |= static_cast<std::uint64_t>(id) | static_cast<std::uint64_t>(end - 1 - id);
  return all >> 63 == 0;
}

}  // namespace

void Batches::check_vocabulary(std::span<const std::int64_t> ids, std::int64_t vocab_size,
                               std::int64_t sample) const {
  if (vocab_size == 0 || all_below(ids, vocab_size)) return;
  for (const std::int64_t id : ids)
    if (id < 0 || id >= vocab_size)
      throw DataError(fmt::format("{}: token ids must be 0 to {}; got {} in sample {}; {}", samples_->name(),
                                  vocab_size - 1, id, sample, out_of_vocabulary_fix(id, vocab_size)));
}

}  // namespace colonnade::data
