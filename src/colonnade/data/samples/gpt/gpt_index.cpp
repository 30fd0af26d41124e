// See gpt_index.h.
#include "colonnade/data/samples/gpt/gpt_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/data/index_memory.h"
#include "colonnade/data/numpy_random.h"

namespace colonnade::data {
namespace {

/// Number of samples in `tokens`. A partial last sample is counted in float32, as in Megatron.
std::int64_t count_samples(const GptIndexPlan& plan, std::int64_t tokens) {
  const std::int64_t usable = tokens - plan.extra();
  if (plan.drop_last_partial) return usable / plan.sequence_length;
  return static_cast<std::int64_t>(
      std::ceil(static_cast<float>(usable) / static_cast<float>(plan.sequence_length)));
}

LargeVector<std::int32_t> build_document_index(const GptIndexPlan& plan, const GptEpochs& epochs,
                                               RandomState& random) {
  const auto per_epoch = static_cast<std::size_t>(plan.sequences.size());
  LargeVector<std::int32_t> index(per_epoch * static_cast<std::size_t>(epochs.epochs));
  for (std::size_t at = 0; at < index.size(); at += per_epoch)
    std::iota(index.begin() + static_cast<std::ptrdiff_t>(at),
              index.begin() + static_cast<std::ptrdiff_t>(at + per_epoch),
              static_cast<std::int32_t>(plan.sequences.begin));
  const std::span<std::int32_t> all(index);
  const std::size_t last = epochs.separate_final_epoch ? per_epoch : 0;
  random.shuffle(all.first(all.size() - last));
  if (last > 0) random.shuffle(all.last(last));
  return index;
}

/// Calls emit(position in the document index, token offset) for each of the `samples` + 1 rows of the sample
/// index.
template <typename Emit>
void walk_samples(const TokenSource& source, std::span<const std::int32_t> documents,
                  const GptIndexPlan& plan, std::int64_t samples, const Emit& emit) {
  // Lengths are accessed in random order: a compact copy is faster, and is prefetched.
  LargeVector<std::int32_t> lengths(static_cast<std::size_t>(plan.sequences.size()));
  for (std::size_t i = 0; i < lengths.size(); ++i)
    lengths[i] =
        static_cast<std::int32_t>(source.length(plan.sequences.begin + static_cast<std::int64_t>(i)));
  const auto length = [&](std::int64_t at) -> const std::int32_t& {
    return lengths[static_cast<std::size_t>(documents[static_cast<std::size_t>(at)] - plan.sequences.begin)];
  };
  constexpr std::int64_t kAhead = 24;
  const auto last = static_cast<std::int64_t>(documents.size()) - 1;
  const std::int64_t extra = plan.extra();
  std::int64_t position = 0;
  std::int64_t offset = 0;
  std::int64_t size = length(0);
  emit(position, offset);
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    std::int64_t wanted = plan.sequence_length + extra;
    while (wanted > size - offset && position < last) {
      wanted -= size - offset;
      offset = 0;
      size = length(++position);
      if (position + kAhead <= last) __builtin_prefetch(&length(position + kAhead));
    }
    offset = (wanted <= size - offset ? offset + wanted : size) - extra;
    emit(position, offset);
  }
}

/// Checks the memory of the three arrays and of the lengths that the sample index is built from.
void require_memory(const TokenSource& source, const GptIndexPlan& plan, const GptEpochs& epochs,
                    std::int64_t samples) {
  constexpr double kMost = std::numeric_limits<std::int32_t>::max();
  const auto per_epoch = static_cast<double>(plan.sequences.size()), rows = static_cast<double>(samples);
  const double documents = per_epoch * static_cast<double>(epochs.epochs);
  const double bytes = 4 * (documents + per_epoch) + (documents > kMost ? 16 : 8) * (rows + 1) +
                       (rows > 2 * kMost ? 8 : 4) * rows;
  require_index_memory(source.name(), fmt::format("{} samples of {} epochs", samples, epochs.epochs), bytes);
}

template <typename Int>
IntArray build_sample_index(const TokenSource& source, std::span<const std::int32_t> documents,
                            const GptIndexPlan& plan, std::int64_t samples) {
  LargeVector<Int> rows(2 * static_cast<std::size_t>(samples + 1));
  Int* row = rows.data();
  walk_samples(source, documents, plan, samples, [&row](std::int64_t position, std::int64_t offset) {
    *row++ = static_cast<Int>(position);
    *row++ = static_cast<Int>(offset);
  });
  return IntArray(std::move(rows), 2);
}

template <typename Int>
IntArray build_shuffle_index(std::int64_t samples, std::int64_t before_final, RandomState& random) {
  LargeVector<Int> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), Int{0});
  const std::span<Int> all(order);
  random.shuffle(all.first(static_cast<std::size_t>(before_final)));
  if (before_final < samples) random.shuffle(all.subspan(static_cast<std::size_t>(before_final)));
  return IntArray(std::move(order));
}

}  // namespace

GptEpochs count_epochs(const TokenSource& source, const GptIndexPlan& plan) {
  GptEpochs result;
  for (std::int64_t i = plan.sequences.begin; i < plan.sequences.end; ++i)
    result.tokens_per_epoch += source.length(i);
  const std::int64_t tokens = result.tokens_per_epoch;
  const std::int64_t needed = plan.sequence_length + plan.extra();
  if (tokens == 0 || (!plan.num_samples && plan.drop_last_partial && tokens < needed))
    throw DataError(fmt::format(
        "{}: sequences {} to {} must hold at least {} tokens, one sample; got {}; add data, lower --seq-length or "
        "change --split",
        source.name(), plan.sequences.begin, plan.sequences.end, needed, tokens));
  if (!plan.num_samples) return result;
  std::int64_t wanted = 0;
  if (__builtin_mul_overflow(*plan.num_samples, plan.sequence_length, &wanted) ||
      __builtin_add_overflow(wanted, plan.extra() + tokens, &wanted))
    throw ConfigError(fmt::format(
        "samples: number of samples times --seq-length must fit 64 bits; got {} x {}; request fewer",
        *plan.num_samples, plan.sequence_length));
  wanted -= tokens;
  result.epochs = std::max<std::int64_t>((wanted + tokens - 1) / tokens, 1);
  if (result.epochs > 1) {
    const std::int64_t before = ((result.epochs - 1) * tokens - plan.extra()) / plan.sequence_length;
    const std::int64_t from_final = *plan.num_samples - before;
    const std::int64_t per_epoch = (tokens - plan.extra()) / plan.sequence_length;
    result.separate_final_epoch =
        from_final < static_cast<std::int64_t>(0.80 * static_cast<double>(per_epoch));
  }
  return result;
}

void check_gpt_index(const TokenSource& source, const GptIndexPlan& plan, const GptIndex& index) {
  const GptEpochs epochs = count_epochs(source, plan);
  const std::int64_t samples = count_samples(plan, epochs.epochs * epochs.tokens_per_epoch);
  const auto require = [](bool holds, std::string_view what) {
    if (!holds) throw DataError(fmt::format("its {} must fit the data and the settings; got another", what));
  };
  require(index.document.type() == IntType::kInt32 && index.document.cols() == 1 &&
              index.document.rows() == epochs.epochs * plan.sequences.size(),
          "document index");
  std::vector<std::int64_t> seen(static_cast<std::size_t>(plan.sequences.size()), 0);
  LargeVector<std::int32_t> documents(static_cast<std::size_t>(index.document.rows()));
  for (std::int64_t i = 0; i < index.document.rows(); ++i) {
    const std::int64_t sequence = index.document[i];
    require(sequence >= plan.sequences.begin && sequence < plan.sequences.end &&
                ++seen[static_cast<std::size_t>(sequence - plan.sequences.begin)] <= epochs.epochs,
            "document index");
    documents[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(sequence);
  }
  const bool large = index.document.rows() > std::numeric_limits<std::int32_t>::max();
  require(index.sample.type() == (large ? IntType::kInt64 : IntType::kInt32) && index.sample.cols() == 2 &&
              index.sample.rows() == samples + 1,
          "sample index");
  std::int64_t at = 0;
  bool fits = true;
  walk_samples(source, documents, plan, samples, [&](std::int64_t position, std::int64_t offset) {
    fits = fits && index.sample[at] == position && index.sample[at + 1] == offset;
    at += 2;
  });
  require(fits, "sample index");
  require(index.shuffle.rows() == samples && index.shuffle.cols() == 1, "shuffle index");
  std::vector<bool> drawn(static_cast<std::size_t>(samples), false);
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::int64_t sample = index.shuffle[i];
    require(sample >= 0 && sample < samples && !drawn[static_cast<std::size_t>(sample)], "shuffle index");
    drawn[static_cast<std::size_t>(sample)] = true;
  }
}

GptIndex build_gpt_index(const TokenSource& source, const GptIndexPlan& plan) {
  COL_CHECK(
      plan.sequence_length > 0 && plan.sequences.begin >= 0 && plan.sequences.end <= source.num_sequences(),
      "{}: the plan must name sequences 0 to {} and a length above 0; got {} to {} and {}", source.name(),
      source.num_sequences(), plan.sequences.begin, plan.sequences.end, plan.sequence_length);
  const GptEpochs epochs = count_epochs(source, plan);
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (plan.sequences.end > kMost)
    throw DataError(fmt::format(
        "{}: a data set must have at most {} sequences to be indexed; got {}; split it into several and "
        "blend them",
        source.name(), kMost, plan.sequences.end));
  const std::int64_t samples = count_samples(plan, epochs.epochs * epochs.tokens_per_epoch);
  require_memory(source, plan, epochs, samples);
  RandomState random(plan.seed);
  LargeVector<std::int32_t> documents = build_document_index(plan, epochs, random);
  std::int64_t before_final = samples;
  if (epochs.separate_final_epoch)
    before_final = ((epochs.epochs - 1) * epochs.tokens_per_epoch - plan.extra()) / plan.sequence_length;

  GptIndex index;
  // int32 holds every position and every offset (an offset is below the int32 length of its sequence).
  index.sample = static_cast<std::int64_t>(documents.size()) > kMost
                     ? build_sample_index<std::int64_t>(source, documents, plan, samples)
                     : build_sample_index<std::int32_t>(source, documents, plan, samples);
  index.shuffle = samples >= std::int64_t{0xfffffffe}
                      ? build_shuffle_index<std::int64_t>(samples, before_final, random)
                      : build_shuffle_index<std::uint32_t>(samples, before_final, random);
  index.document = IntArray(std::move(documents));
  return index;
}

}  // namespace colonnade::data
