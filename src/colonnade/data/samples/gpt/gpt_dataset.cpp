// See gpt_dataset.h.
#include "colonnade/data/samples/gpt/gpt_dataset.h"

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

std::string describe(const GptIndexPlan& plan) {
  return fmt::format(
      "GPT indices, version 1\nsequences {} to {}\nsequence length {}\nsamples {}\nseed {}\nextra token "
      "{}\n"
      "drop last partial {}\n",
      plan.sequences.begin, plan.sequences.end, plan.sequence_length,
      plan.num_samples ? fmt::format("{}", *plan.num_samples) : "one epoch", plan.seed, plan.extra(),
      plan.drop_last_partial);
}

}  // namespace

GptDataset::GptDataset(std::shared_ptr<const TokenSource> source, const GptIndexPlan& plan,
                       const IndexCache& cache, CacheKey key)
    : source_(std::move(source)), plan_(plan), epochs_(count_epochs(*source_, plan_)) {
  key.settings = describe(plan);
  key.check = [this](const std::vector<IntArray>& arrays) {
    check_gpt_index(*source_, plan_, {arrays[0], arrays[1], arrays[2]});
  };
  const auto build = [this] {
    GptIndex built = build_gpt_index(*source_, plan_);
    return std::vector<IntArray>{built.document, built.sample, built.shuffle};
  };
  const std::string what = fmt::format("{} (samples of {} tokens)", source_->name(), plan.sequence_length);
  const auto arrays = cache.get(what, key, {"document_index", "sample_index", "shuffle_index"}, build);
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
           .separate_final_epoch = epochs_.separate_final_epoch,
           .asked = plan_.num_samples,
           .sequences = plan_.sequences}};
}

std::vector<SampleSpan> GptDataset::spans(std::int64_t number) const {
  check_number(number);
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
  std::vector<SampleSpan> result;
  result.reserve(static_cast<std::size_t>(last - first) + 1);
  for (std::int64_t position = first; position <= last; ++position) {
    const std::int64_t sequence = index_.document[position];
    if (sequence < 0 || sequence >= source_->num_sequences()) throw damaged();
    const std::int64_t begin = position == first ? index_.sample[2 * row + 1] : 0;
    const std::int64_t end = position == last ? end_offset : source_->length(sequence);
    if (begin < 0 || end < begin || end > source_->length(sequence)) throw damaged();
    if (end > begin)
      result.push_back({.sequence = sequence,
                        .sequence_length = source_->length(sequence),
                        .offset = begin,
                        .length = end - begin,
                        .labels = position == last ? std::min(plan_.extra(), end - begin) : 0});
  }
  return result;
}

void GptDataset::read(const SampleSpan& piece, std::span<std::int64_t> out) const {
  source_->tokens(piece.sequence, piece.offset, out);
}

void GptDataset::tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const {
  std::size_t filled = 0;
  for (const SampleSpan& piece : spans(number)) {
    const auto length = static_cast<std::size_t>(piece.length);
    if (length > out.size() - filled)
      throw DataError(fmt::format(
          "{}: the index cache must fit the data; got sample {}, which exceeds {} tokens; delete the cache",
          source_->name(), number, out.size()));
    source_->tokens(piece.sequence, piece.offset, out.subspan(filled, length));
    filled += length;
  }
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(filled), out.end(), pad);
}

}  // namespace colonnade::data
