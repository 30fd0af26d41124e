// Blends: one stream of samples out of several data sets.
// Source: Megatron's core/datasets/blended_dataset.py and helpers.cpp, whose order this is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "colonnade/data/index_cache.h"
#include "colonnade/data/npy.h"

namespace colonnade::data {

/// Prefixes with or without weights. `weights` is empty or has one entry per prefix, normalised.
struct Blend {
  std::vector<std::string> prefixes;
  std::vector<double> weights;
};

/// Reads --data-path: with an even number of words of which every first is a number, (weight, prefix)
/// pairs; else prefixes. Throws ConfigError when a weight is not positive and finite, and for a number among
/// words that are no pairs.
Blend parse_blend(std::span<const std::string> words);

/// Which data set, and which of its samples, each sample of the blend is.
struct BlendIndex {
  IntArray dataset;  ///< int16
  IntArray sample;   ///< int64
};

/// Step t takes the data set that is furthest behind, argmax of weight * max(t, 1) - taken; the first of
/// equals. Throws ConfigError, before it allocates, where the index is larger than this machine's memory, as
/// those below do.
BlendIndex blend_by_weight(std::span<const double> weights, std::int64_t size);

/// The same, built once by whoever comes first and mapped by all from the arrays "dataset_index" and
/// "dataset_sample_index", whose files have the bytes of Megatron's. 10 bytes a sample.
BlendIndex blend_by_weight(std::span<const double> weights, std::int64_t size, const IndexCache& cache,
                           CacheKey key);

/// The same rule with weight = size / total over the sets not yet used up, until all are.
BlendIndex blend_exhaustively(std::span<const std::int64_t> sizes);
BlendIndex blend_exhaustively(std::span<const std::int64_t> sizes, const IndexCache& cache, CacheKey key);

/// Samples to ask of each data set for `target` samples of the blend: ceil(ceil(target * w) * (1 + surplus)).
std::vector<std::int64_t> samples_per_dataset(std::span<const double> weights, std::int64_t target,
                                              double surplus);

}  // namespace colonnade::data
