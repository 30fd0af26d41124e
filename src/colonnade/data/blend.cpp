// See blend.h.
#include "colonnade/data/blend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/config/data_flags.h"
#include "colonnade/data/index_memory.h"
#include "colonnade/data/split.h"

namespace colonnade::data {
namespace {

void check_num_datasets(std::size_t datasets) {
  if (datasets >= static_cast<std::size_t>(std::numeric_limits<std::int16_t>::max()))
    throw ConfigError(
        fmt::format("--data-path must name at most 32766 data sets; got {}; merge some", datasets));
}

/// Checks the memory for 10 bytes per sample: an int16 and an int64.
void require_blend_memory(std::size_t datasets, std::int64_t samples) {
  require_index_memory(fmt::format("a blend of {} data sets", datasets), fmt::format("{} samples", samples),
                       10 * static_cast<double>(samples));
}

/// Picks the data set of each step by its weight. Weights and counts lie in pairs, one SIMD vector each, so
/// that the search for the maximum has no branches.
class WeightedPicker {
 public:
  explicit WeightedPicker(std::span<const double> weights) : pairs_((weights.size() + 3) / 4 * 2) {
    for (std::size_t i = 0; i < 2 * pairs_.size(); ++i) {
      Pair& pair = pairs_[i / 2];
      pair.number[i % 2] = static_cast<double>(i);
      pair.weight[i % 2] = i < weights.size() ? weights[i] : 0;
      pair.drawn[i % 2] = i < weights.size() ? 0 : std::numeric_limits<double>::infinity();
    }
  }

  /// Draws from the data set with the largest weight * step - drawn; the first one on a tie.
  std::size_t pick(double step) {
    Best even, odd;
    for (std::size_t i = 0; i < pairs_.size(); i += 2) {
      even.update(pairs_[i], step, last_);
      odd.update(pairs_[i + 1], step, last_);
    }
    double most = even.most[0], found = even.number[0];
    for (const Best* best : {&even, &odd})
      for (const int i : {0, 1}) {
        const bool better = best->most[i] > most || (best->most[i] == most && best->number[i] < found);
        most = better ? best->most[i] : most;
        found = better ? best->number[i] : found;
      }
    last_ = found;
    return static_cast<std::size_t>(found);
  }

 private:
  using Two = double __attribute__((vector_size(16)));
  using Mask = std::int64_t __attribute__((vector_size(16)));
  struct Pair {
    Two number, weight, drawn;
  };
  /// Selects `yes` where the mask is set, else `no`.
  static Two choose(Mask mask, Two yes, Two no) {
    return reinterpret_cast<Two>((mask & reinterpret_cast<Mask>(yes)) | (~mask & reinterpret_cast<Mask>(no)));
  }
  struct Best {
    Two most = {-std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
    Two number = {0, 0};
    void update(Pair& pair, double step, double last) {
      const Mask drawn = pair.number == Two{last, last};
      pair.drawn += choose(drawn, Two{1, 1}, Two{0, 0});
      const Two deficit = pair.weight * step - pair.drawn;
      const Mask more = deficit > most;
      number = choose(more, pair.number, number);
      most = choose(more, deficit, most);
    }
  };
  std::vector<Pair> pairs_;
  double last_ = -1;  ///< data set drawn last, not yet counted in its pair
};

/// Throws DataError unless the samples of every data set appear in ascending order without gaps.
void check_blend(const BlendIndex& index, std::size_t datasets, std::int64_t size) {
  if (index.dataset.rows() != size || index.sample.rows() != size || index.dataset.cols() != 1 ||
      index.sample.cols() != 1 || index.dataset.type() != IntType::kInt16 ||
      index.sample.type() != IntType::kInt64)
    throw DataError(fmt::format("its arrays must have {} samples; got {} and {}", size, index.dataset.size(),
                                index.sample.size()));
  std::vector<std::int64_t> drawn(datasets, 0);
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t set = index.dataset[i];
    if (set < 0 || set >= std::ssize(drawn) || index.sample[i] != drawn[static_cast<std::size_t>(set)]++)
      throw DataError(fmt::format("sample {} of the blend must be the next of a data set; got another", i));
  }
}

}  // namespace

Blend parse_blend(std::span<const std::string> words) {
  if (const auto fault = config::data_paths_error(words))
    throw ConfigError(fmt::format("--data-path: {}; got {}; {}", fault->rule, fault->got, fault->fix));
  Blend blend;
  if (!config::is_weighted_blend(words)) {
    blend.prefixes.assign(words.begin(), words.end());
    return blend;
  }
  for (std::size_t i = 0; i < words.size(); i += 2) {
    blend.weights.push_back(*config::number_of(words[i]));
    blend.prefixes.push_back(words[i + 1]);
  }
  blend.weights = normalize(blend.weights);
  return blend;
}

BlendIndex blend_by_weight(std::span<const double> weights, std::int64_t size) {
  check_num_datasets(weights.size());
  require_blend_memory(weights.size(), size);
  LargeVector<std::int16_t> dataset(static_cast<std::size_t>(size));
  LargeVector<std::int64_t> sample(static_cast<std::size_t>(size));
  std::vector<std::int64_t> drawn(weights.size(), 0);
  WeightedPicker picker(weights);
  for (std::size_t t = 0; t < dataset.size(); ++t) {
    const std::size_t best = picker.pick(std::max(static_cast<double>(t), 1.0));
    dataset[t] = static_cast<std::int16_t>(best);
    sample[t] = drawn[best]++;
  }
  return {IntArray(std::move(dataset)), IntArray(std::move(sample))};
}

namespace {

/// The index of `size` samples from the cache; `build` makes it on a miss.
template <class Build>
BlendIndex load_or_build(std::size_t datasets, std::int64_t size, const IndexCache& cache, CacheKey key,
                         const Build& build) {
  key.check = [&](const std::vector<IntArray>& arrays) {
    check_blend({arrays[0], arrays[1]}, datasets, size);
  };
  const auto arrays = cache.get(fmt::format("a blend of {} data sets ({} samples)", datasets, size), key,
                                {"dataset_index", "dataset_sample_index"}, [&] {
                                  const BlendIndex built = build();
                                  return std::vector<IntArray>{built.dataset, built.sample};
                                });
  return {arrays[0], arrays[1]};
}

}  // namespace

BlendIndex blend_by_weight(std::span<const double> weights, std::int64_t size, const IndexCache& cache,
                           CacheKey key) {
  return load_or_build(weights.size(), size, cache, std::move(key),
                       [&] { return blend_by_weight(weights, size); });
}

BlendIndex blend_exhaustively(std::span<const std::int64_t> sizes) {
  check_num_datasets(sizes.size());
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  require_blend_memory(sizes.size(), total);
  std::vector<std::size_t> unspent(sizes.size());
  std::iota(unspent.begin(), unspent.end(), std::size_t{0});
  std::erase_if(unspent, [&sizes](std::size_t i) { return sizes[i] == 0; });
  std::vector<std::int64_t> drawn(sizes.size(), 0);
  LargeVector<std::int16_t> dataset(static_cast<std::size_t>(total));
  LargeVector<std::int64_t> sample(static_cast<std::size_t>(total));
  for (std::size_t t = 0; t < dataset.size(); ++t) {
    const double step = std::max(static_cast<double>(t), 1.0);
    std::size_t best = unspent.front();
    double largest = -std::numeric_limits<double>::infinity();
    for (const std::size_t i : unspent) {
      const double weight = static_cast<double>(sizes[i]) / static_cast<double>(total);
      const double deficit = weight * step - static_cast<double>(drawn[i]);
      if (deficit > largest) {
        largest = deficit;
        best = i;
      }
    }
    dataset[t] = static_cast<std::int16_t>(best);
    sample[t] = drawn[best]++;
    if (drawn[best] == sizes[best]) std::erase(unspent, best);
  }
  return {IntArray(std::move(dataset)), IntArray(std::move(sample))};
}

BlendIndex blend_exhaustively(std::span<const std::int64_t> sizes, const IndexCache& cache, CacheKey key) {
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  return load_or_build(sizes.size(), total, cache, std::move(key), [&] { return blend_exhaustively(sizes); });
}

std::vector<std::int64_t> samples_per_dataset(std::span<const double> weights, std::int64_t target,
                                              double surplus) {
  std::vector<std::int64_t> samples;
  for (const double weight : weights)
    samples.push_back(static_cast<std::int64_t>(
        std::ceil(std::ceil(static_cast<double>(target) * weight) * (1 + surplus))));
  return samples;
}

}  // namespace colonnade::data
