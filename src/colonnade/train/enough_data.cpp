// See enough_data.h.
#include "colonnade/train/enough_data.h"

#include <fmt/format.h>

#include <algorithm>

namespace colonnade::train {
namespace {

constexpr const char* kWayOut = "add data, or write WEIGHT PREFIX for each data set, which repeats them";

/// The number of validations from the first iteration to the end of the run.
std::int64_t validations(const config::Training& t, const job::Counters& done) {
  if (!t.eval_interval) return t.skip_train ? 1 : 0;
  if (t.skip_train) return std::max<std::int64_t>(done.iteration / *t.eval_interval, 1);
  const std::int64_t last = last_iteration(t, done);
  return last / *t.eval_interval + (last % *t.eval_interval > 0 ? 1 : 0);
}

}  // namespace

std::int64_t last_iteration(const config::Training& t, const job::Counters& done) {
  if (t.train_iters) return *t.train_iters;
  const std::int64_t left = std::max<std::int64_t>(*t.train_samples - done.consumed_samples, 0);
  return done.iteration + left / t.global_batch_size;
}

std::vector<std::string> shortages(const SplitSizes& sizes, const config::Training& t,
                                   const job::Counters& done) {
  std::vector<std::string> found;
  const std::int64_t batch = t.global_batch_size;
  const std::int64_t steps = t.skip_train ? 0 : last_iteration(t, done) - done.iteration;
  if (const auto size = sizes[0]; size && steps > 0 && done.consumed_samples + steps * batch > *size) {
    const std::int64_t most =
        done.iteration + std::max<std::int64_t>(*size - done.consumed_samples, 0) / batch;
    found.push_back(
        fmt::format("--train-iters: the training data must hold the samples of all steps; got {} samples for "
                    "{} iterations, which read {}; at most --train-iters {}, or {}",
                    *size, last_iteration(t, done), done.consumed_samples + steps * batch, most, kWayOut));
  }
  const std::int64_t times = validations(t, done);
  const std::int64_t counts[] = {times, times > 0 ? 1 : 0};
  for (const std::size_t split : {1, 2}) {
    const std::int64_t count = counts[split - 1];
    const auto size = sizes[split];
    if (!size || count * t.eval_iters * batch <= *size) continue;
    found.push_back(
        fmt::format("--eval-iters: the {} data must hold the samples of all evaluations; got {} samples for "
                    "{} evaluations of {} iterations, which read {}; at most --eval-iters {}, or {}",
                    split == 1 ? "validation" : "test", *size, count, t.eval_iters,
                    count * t.eval_iters * batch, *size / (count * batch), kWayOut));
  }
  return found;
}

}  // namespace colonnade::train
