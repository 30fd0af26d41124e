// See blend.h.
#include "colonnade/data/blend.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/config/words_of_data.h"
#include "colonnade/data/split.h"

namespace colonnade::data {
namespace {

void check_count(std::size_t datasets) {
  if (datasets >= static_cast<std::size_t>(std::numeric_limits<std::int16_t>::max()))
    throw ConfigError(
        fmt::format("--data-path: a blend has at most 32766 data sets; got {}; merge some", datasets));
}

}  // namespace

Blend parse_blend(std::span<const std::string> words) {
  if (const auto fault = config::paths_fault(words))
    throw ConfigError(fmt::format("--data-path: {}; got {}; {}", fault->rule, fault->got, fault->way_out));
  Blend blend;
  if (!config::are_pairs(words)) {
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
  check_count(weights.size());
  std::vector<std::int16_t> dataset(static_cast<std::size_t>(size));
  std::vector<std::int64_t> sample(static_cast<std::size_t>(size));
  std::vector<std::int64_t> taken(weights.size(), 0);
  for (std::size_t t = 0; t < dataset.size(); ++t) {
    const double step = std::max(static_cast<double>(t), 1.0);
    std::size_t best = 0;
    double furthest = weights[0] * step - static_cast<double>(taken[0]);
    for (std::size_t i = 1; i < weights.size(); ++i) {
      const double behind = weights[i] * step - static_cast<double>(taken[i]);
      if (behind > furthest) {
        furthest = behind;
        best = i;
      }
    }
    dataset[t] = static_cast<std::int16_t>(best);
    sample[t] = taken[best]++;
  }
  return {IntArray(std::move(dataset)), IntArray(std::move(sample))};
}

BlendIndex blend_by_weight(std::span<const double> weights, std::int64_t size, const IndexCache& cache) {
  const auto arrays = cache.get(
      fmt::format("a blend of {} data sets ({} samples)", weights.size(), size),
      fmt::format("Blend indices, version 1\nweights {}\nsamples {}\n", fmt::join(weights, " "), size),
      {"dataset_index", "dataset_sample_index"}, [&] {
        const BlendIndex built = blend_by_weight(weights, size);
        return std::vector<IntArray>{built.dataset, built.sample};
      });
  return {arrays[0], arrays[1]};
}

BlendIndex blend_exhaustively(std::span<const std::int64_t> sizes) {
  check_count(sizes.size());
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  std::vector<std::size_t> unspent(sizes.size());
  std::iota(unspent.begin(), unspent.end(), std::size_t{0});
  std::erase_if(unspent, [&sizes](std::size_t i) { return sizes[i] == 0; });
  std::vector<std::int64_t> taken(sizes.size(), 0);
  std::vector<std::int16_t> dataset(static_cast<std::size_t>(total));
  std::vector<std::int64_t> sample(static_cast<std::size_t>(total));
  for (std::size_t t = 0; t < dataset.size(); ++t) {
    const double step = std::max(static_cast<double>(t), 1.0);
    std::size_t best = unspent.front();
    double furthest = -std::numeric_limits<double>::infinity();
    for (const std::size_t i : unspent) {
      const double weight = static_cast<double>(sizes[i]) / static_cast<double>(total);
      const double behind = weight * step - static_cast<double>(taken[i]);
      if (behind > furthest) {
        furthest = behind;
        best = i;
      }
    }
    dataset[t] = static_cast<std::int16_t>(best);
    sample[t] = taken[best]++;
    if (taken[best] == sizes[best]) std::erase(unspent, best);
  }
  return {IntArray(std::move(dataset)), IntArray(std::move(sample))};
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
