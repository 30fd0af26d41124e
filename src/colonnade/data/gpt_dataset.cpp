// See gpt_dataset.h.
#include "colonnade/data/gpt_dataset.h"

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

void check_number(const SampleSource& source, std::int64_t number) {
  if (number < 0 || number >= source.size())
    throw DataError(
        fmt::format("{}: holds samples 0 to {}; asked for sample {}; train for fewer steps or add data",
                    source.name(), source.size() - 1, number));
}

std::string describe(const GptIndexPlan& plan, const std::string& identity) {
  return fmt::format(
      "GPT indices, version 1\n{}\nsequences {} to {}\nsequence length {}\nsamples {}\nseed {}\nextra token "
      "{}\n"
      "drop last partial {}\n",
      identity, plan.sequences.begin, plan.sequences.end, plan.sequence_length,
      plan.num_samples ? fmt::format("{}", *plan.num_samples) : "one epoch", plan.seed, plan.extra(),
      plan.drop_last_partial);
}

}  // namespace

std::int64_t SampleSource::passes() const {
  std::int64_t most = 1;
  for (const SampleOrder& order : orders()) most = std::max(most, order.passes);
  return most;
}

GptDataset::GptDataset(std::shared_ptr<const TokenSource> source, const GptIndexPlan& plan,
                       const IndexCache& cache, const std::string& identity)
    : source_(std::move(source)), plan_(plan), epochs_(count_epochs(*source_, plan_)) {
  const auto build = [this] {
    GptIndex built = build_gpt_index(*source_, plan_);
    return std::vector<IntArray>{built.document, built.sample, built.shuffle};
  };
  const std::string what = fmt::format("{} (samples of {} tokens)", source_->name(), plan.sequence_length);
  const auto arrays =
      cache.get(what, describe(plan, identity), {"document_index", "sample_index", "shuffle_index"}, build);
  index_ = {arrays[0], arrays[1], arrays[2]};
  if (index_.sample.cols() != 2 || index_.sample.rows() != index_.shuffle.rows() + 1)
    throw DataError(fmt::format(
        "{}: index caches must fit each other; got {} sample rows for {} samples; delete the cache",
        source_->name(), index_.sample.rows(), index_.shuffle.rows()));
}

std::vector<SampleOrder> GptDataset::orders() const {
  return {{.name = name(),
           .tokens = epochs_.tokens_per_epoch,
           .passes = epochs_.epochs,
           .last_apart = epochs_.separate_final_epoch,
           .asked = plan_.num_samples}};
}

std::vector<GptDataset::Piece> GptDataset::pieces(std::int64_t number) const {
  check_number(*this, number);
  const std::int64_t row = index_.shuffle[number];
  const auto damaged = [this, number] {
    return DataError(
        fmt::format("{}: the index cache must fit the data; got sample {} outside of it; delete the cache",
                    source_->name(), number));
  };
  if (row < 0 || row + 1 >= index_.sample.rows()) throw damaged();
  const std::int64_t first = index_.sample[2 * row];
  const std::int64_t last = index_.sample[2 * row + 2];
  const std::int64_t end_offset = index_.sample[2 * row + 3] + plan_.extra();
  if (first < 0 || last < first || last >= index_.document.rows()) throw damaged();
  std::vector<Piece> result;
  for (std::int64_t position = first; position <= last; ++position) {
    const std::int64_t sequence = index_.document[position];
    if (sequence < 0 || sequence >= source_->num_sequences()) throw damaged();
    const std::int64_t begin = position == first ? index_.sample[2 * row + 1] : 0;
    const std::int64_t end = position == last ? end_offset : source_->length(sequence);
    if (begin < 0 || end < begin || end > source_->length(sequence)) throw damaged();
    if (end > begin) result.push_back({sequence, begin, end - begin});
  }
  return result;
}

void GptDataset::tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const {
  std::size_t filled = 0;
  for (const Piece& piece : pieces(number)) {
    const auto length = static_cast<std::size_t>(piece.length);
    if (length > out.size() - filled)
      throw DataError(fmt::format(
          "{}: the index cache must fit the data; got a sample {} longer than {} tokens; delete the "
          "cache",
          source_->name(), number, out.size()));
    source_->tokens(piece.sequence, piece.offset, out.subspan(filled, length));
    filled += length;
  }
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(filled), out.end(), pad);
}

BlendedDataset::BlendedDataset(std::vector<std::shared_ptr<const SampleSource>> datasets, BlendIndex index)
    : datasets_(std::move(datasets)), index_(std::move(index)) {
  if (index_.dataset.rows() != index_.sample.rows())
    throw DataError(fmt::format(
        "{}: index caches must fit each other; got {} data set numbers for {} samples; delete the cache",
        name(), index_.dataset.rows(), index_.sample.rows()));
  // From the end: the last sample of a data set is its highest, and most data sets come soon.
  std::vector<std::int64_t> taken(datasets_.size(), 0);
  std::size_t unseen = datasets_.size();
  for (std::int64_t i = size() - 1; i >= 0 && unseen > 0; --i) {
    auto& most = taken[dataset_of(i)];
    if (most > 0) continue;
    most = index_.sample[i] + 1;
    --unseen;
  }
  for (std::size_t i = 0; i < datasets_.size(); ++i)
    if (taken[i] > datasets_[i]->size())
      throw DataError(
          fmt::format("{}: the blend takes {} samples of it; got {}; raise --mid-level-dataset-surplus",
                      datasets_[i]->name(), taken[i], datasets_[i]->size()));
}

void BlendedDataset::tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const {
  check_number(*this, number);
  datasets_[dataset_of(number)]->tokens(index_.sample[number], pad, out);
}

std::size_t BlendedDataset::dataset_of(std::int64_t number) const {
  const std::int64_t dataset = index_.dataset[number];
  if (dataset >= 0 && dataset < static_cast<std::int64_t>(datasets_.size()))
    return static_cast<std::size_t>(dataset);
  throw DataError(
      fmt::format("{}: the index cache must fit the data; got sample {} of data set {}; delete the cache",
                  name(), number, dataset));
}

std::vector<SampleOrder> BlendedDataset::orders() const {
  std::vector<SampleOrder> all;
  for (const auto& dataset : datasets_) {
    auto orders = dataset->orders();
    all.insert(all.end(), orders.begin(), orders.end());
  }
  return all;
}

std::string BlendedDataset::name() const {
  return fmt::format("blend of {} data sets ({}, ...)", datasets_.size(),
                     datasets_.empty() ? "" : datasets_[0]->name());
}

}  // namespace colonnade::data
