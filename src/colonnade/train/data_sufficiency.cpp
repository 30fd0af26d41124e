// See data_sufficiency.h.
#include "colonnade/train/data_sufficiency.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "colonnade/config/batch_schedule.h"

namespace colonnade::train {
namespace {

constexpr const char* kFix = "add data, or write WEIGHT PREFIX for each dataset, which repeats them";

}  // namespace

std::vector<std::string> shortages(const SplitSizes& sizes, const config::Training& t,
                                   const data::RunProgress& done) {
  std::vector<std::string> found;
  const config::BatchSchedule schedule = config::batch_schedule(t);
  const std::int64_t batch = config::eval_batch_size(t);
  const std::int64_t last = t.skip_train ? done.iteration : data::last_iteration(t, done);
  const std::int64_t steps = last - done.iteration;
  const std::int64_t read = schedule.samples_after(done.samples, steps);
  if (const auto size = sizes[0]; size && steps > 0 && read > *size) {
    const std::int64_t possible = schedule.steps_within(done.samples, *size);
    const std::string most =
        t.train_samples ? fmt::format("--train-samples {}", schedule.samples_after(done.samples, possible))
                        : fmt::format("--train-iters {}", done.iteration + possible);
    found.push_back(fmt::format(
        "{}: the training data must hold the samples of all steps; got {} samples for {} iterations, which read {}; "
        "at most {}, or {}",
        t.train_samples ? "--train-samples" : "--train-iters", *size, last, read, most, kFix));
  }
  const std::int64_t times = data::evaluations(t, last);
  const std::int64_t counts[] = {times, times > 0 ? 1 : 0};
  for (const std::size_t split : {1, 2}) {
    const std::int64_t count = counts[split - 1];
    const auto size = split == 1 && t.full_validation ? std::nullopt : sizes[split];
    if (!size || count * t.eval_iters * batch <= *size) continue;
    found.push_back(
        fmt::format("--eval-iters: the {} data must hold the samples of all evaluations; got {} samples for "
                    "{} evaluations of {} iterations, which read {}; at most --eval-iters {}, or {}",
                    split == 1 ? "validation" : "test", *size, count, t.eval_iters,
                    count * t.eval_iters * batch, *size / (count * batch), kFix));
  }
  return found;
}

std::vector<std::string> repeats(const std::vector<data::SampleOrder>& orders, std::string_view split) {
  constexpr std::size_t kMost = 16;
  std::vector<data::SampleOrder> repeated;
  std::ranges::copy_if(orders, std::back_inserter(repeated),
                       [](const auto& order) { return order.epochs() > 1; });
  std::ranges::stable_sort(repeated, std::ranges::greater(), &data::SampleOrder::epochs);
  std::vector<std::string> sentences;
  for (std::size_t i = 0; i < std::min(repeated.size(), kMost); ++i)
    sentences.push_back(fmt::format("{} has fewer {} than the {} samples require; it is read for {} epochs{}",
                                    repeated[i].name, repeated[i].num_epochs ? "conversations" : "tokens",
                                    split, repeated[i].epochs(),
                                    repeated[i].separate_final_epoch ? ", the last one in part" : ""));
  if (repeated.size() > kMost)
    sentences.push_back(fmt::format("{} more datasets are read for {} to {} epochs for the {} samples",
                                    repeated.size() - kMost, repeated.back().epochs(),
                                    repeated[kMost].epochs(), split));
  return sentences;
}

std::vector<std::string> data_notes(const config::Run& run, const data::Splits& splits) {
  const config::Training& t = run.training;
  std::vector<std::string> notes;
  if (splits[1] == nullptr && t.eval_iters > 0 && !t.full_validation && t.eval_interval)
    notes.push_back(fmt::format(
        "--eval-iters {}: no validation runs, because the validation split holds no data", t.eval_iters));
  if (run.data.mock_data) return notes;
  for (std::size_t i = 0; i < splits.size(); ++i)
    if (splits[i] != nullptr)
      for (const std::string& sentence : repeats(splits[i]->samples().orders(), data::kSplitNames[i]))
        notes.push_back("data: " + sentence);
  return notes;
}

}  // namespace colonnade::train
