// See enough_data.h.
#include "colonnade/train/enough_data.h"

#include <fmt/format.h>

#include <algorithm>

namespace colonnade::train {
namespace {

constexpr const char* kWayOut = "add data, or write WEIGHT PREFIX for each data set, which repeats them";

}  // namespace

std::vector<std::string> shortages(const SplitSizes& sizes, const config::Training& t,
                                   const data::SoFar& done) {
  std::vector<std::string> found;
  const std::int64_t batch = t.global_batch_size;
  const std::int64_t last = t.skip_train ? done.iteration : data::last_iteration(t, done);
  const std::int64_t steps = last - done.iteration;
  const std::int64_t read = done.samples + steps * batch;
  if (const auto size = sizes[0]; size && steps > 0 && read > *size) {
    const std::int64_t possible = std::max<std::int64_t>(*size - done.samples, 0) / batch;
    const std::string most = t.train_samples
                                 ? fmt::format("--train-samples {}", done.samples + possible * batch)
                                 : fmt::format("--train-iters {}", done.iteration + possible);
    found.push_back(fmt::format(
        "{}: the training data must hold the samples of all steps; got {} samples for {} iterations, which "
        "read {}; at most {}, or {}",
        t.train_samples ? "--train-samples" : "--train-iters", *size, last, read, most, kWayOut));
  }
  const std::int64_t times = data::evaluations(t, last);
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
