// See sample_source.h.
#include "colonnade/data/sample_source.h"

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

std::vector<SampleOrder> orders_of(const std::vector<std::shared_ptr<const SampleSource>>& datasets) {
  std::vector<SampleOrder> all;
  for (const auto& dataset : datasets) {
    auto orders = dataset->orders();
    all.insert(all.end(), orders.begin(), orders.end());
  }
  return all;
}

}  // namespace

std::int64_t SampleSource::passes() const {
  std::int64_t most = 1;
  for (const SampleOrder& order : orders()) most = std::max(most, order.passes);
  return most;
}

void SampleSource::check_number(std::int64_t number) const {
  if (number < 0 || number >= size())
    throw DataError(
        fmt::format("{}: sample numbers must be 0 to {}; got {}; train for fewer steps or add data", name(),
                    size() - 1, number));
}

BlendedDataset::BlendedDataset(std::vector<std::shared_ptr<const SampleSource>> datasets, BlendIndex index)
    : datasets_(std::move(datasets)), index_(std::move(index)) {
  if (index_.dataset.rows() != index_.sample.rows())
    throw DataError(fmt::format(
        "{}: index caches must fit each other; got {} data set numbers for {} samples; delete the cache",
        name(), index_.dataset.rows(), index_.sample.rows()));
  // Backwards: the last sample of a data set has its highest index, and most data sets appear soon.
  std::vector<std::int64_t> needed(datasets_.size(), 0);
  std::size_t unseen = datasets_.size();
  for (std::int64_t i = size() - 1; i >= 0 && unseen > 0; --i) {
    auto& most = needed[dataset_of(i)];
    if (most > 0) continue;
    most = index_.sample[i] + 1;
    --unseen;
  }
  for (std::size_t i = 0; i < datasets_.size(); ++i)
    if (needed[i] > datasets_[i]->size())
      throw DataError(
          fmt::format("{} must have {} samples for the blend; got {}; raise --mid-level-dataset-surplus",
                      datasets_[i]->name(), needed[i], datasets_[i]->size()));
}

void BlendedDataset::tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const {
  check_number(number);
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

std::vector<SampleOrder> BlendedDataset::orders() const { return orders_of(datasets_); }

std::vector<SampleSpan> BlendedDataset::spans(std::int64_t number) const {
  check_number(number);
  const std::size_t set = dataset_of(number);
  std::vector<SampleSpan> pieces = datasets_[set]->spans(index_.sample[number]);
  for (SampleSpan& piece : pieces) piece.set = static_cast<std::int64_t>(set);
  return pieces;
}

void BlendedDataset::read(const SampleSpan& piece, std::span<std::int64_t> out) const {
  datasets_.at(static_cast<std::size_t>(piece.set))->read(piece, out);
}

void BlendedDataset::for_each_source(const SourceVisitor& visit) const {
  for (const auto& dataset : datasets_) dataset->for_each_source(visit);
}

std::string BlendedDataset::name() const {
  return fmt::format("blend of {} data sets ({}, ...)", datasets_.size(),
                     datasets_.empty() ? "" : datasets_[0]->name());
}

ConcatDataset::ConcatDataset(std::vector<std::shared_ptr<const SampleSource>> datasets)
    : datasets_(std::move(datasets)) {
  for (const auto& dataset : datasets_) sets_.push_back({size(), size() + dataset->size()});
}

std::size_t ConcatDataset::set_of(std::int64_t number) const {
  check_number(number);
  return static_cast<std::size_t>(std::ranges::upper_bound(sets_, number, {}, &Range::end) - sets_.begin());
}

void ConcatDataset::tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const {
  const std::size_t set = set_of(number);
  datasets_[set]->tokens(number - sets_[set].begin, pad, out);
}

std::vector<SampleOrder> ConcatDataset::orders() const { return orders_of(datasets_); }

std::vector<SampleSpan> ConcatDataset::spans(std::int64_t number) const {
  const std::size_t set = set_of(number);
  std::vector<SampleSpan> pieces = datasets_[set]->spans(number - sets_[set].begin);
  for (SampleSpan& piece : pieces) piece.set = static_cast<std::int64_t>(set);
  return pieces;
}

void ConcatDataset::read(const SampleSpan& piece, std::span<std::int64_t> out) const {
  datasets_.at(static_cast<std::size_t>(piece.set))->read(piece, out);
}

void ConcatDataset::for_each_source(const SourceVisitor& visit) const {
  for (const auto& dataset : datasets_) dataset->for_each_source(visit);
}

std::string ConcatDataset::name() const {
  return fmt::format("{} data sets ({}, ...)", datasets_.size(),
                     datasets_.empty() ? "" : datasets_[0]->name());
}

}  // namespace colonnade::data
