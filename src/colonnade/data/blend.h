// Blends: samples of several data sets interleaved by weight, in Megatron's order.
// Source: Megatron's core/datasets/blended_dataset.py and helpers.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "colonnade/data/index_cache.h"
#include "colonnade/data/npy.h"

namespace colonnade::data {

/// Data set prefixes, with or without weights. `weights` is empty or has one normalized entry per prefix.
struct Blend {
  std::vector<std::string> prefixes;
  std::vector<double> weights;
};

/// Parses the words of --data-path: (weight, prefix) pairs if their number is even and every first word of a
/// pair is a number, else prefixes. Throws ConfigError for a weight that is not positive and finite, and for
/// a number in a list that is not made of pairs.
Blend parse_blend(std::span<const std::string> words);

/// For each sample of the blend, its data set and its index in that data set.
struct BlendIndex {
  IntArray dataset;  ///< int16
  IntArray sample;   ///< int64
};

/// Step t draws from the data set with the largest weight * max(t, 1) - drawn; the first one on a tie. Throws
/// ConfigError before allocating if the index exceeds this machine's memory, as do the functions below.
BlendIndex blend_by_weight(std::span<const double> weights, std::int64_t size);

/// The same index through the cache: built by the first process, then memory-mapped by all. The arrays
/// "dataset_index" and "dataset_sample_index" are byte-identical to Megatron's; 10 bytes per sample.
BlendIndex blend_by_weight(std::span<const double> weights, std::int64_t size, const IndexCache& cache,
                           CacheKey key);

/// The same rule with weight = size / total over the data sets not yet exhausted, until all are.
BlendIndex blend_exhaustively(std::span<const std::int64_t> sizes);
BlendIndex blend_exhaustively(std::span<const std::int64_t> sizes, const IndexCache& cache, CacheKey key);

/// Samples requested from each data set for `target` samples of the blend: ceil(ceil(target * w) * (1 +
/// surplus)).
std::vector<std::int64_t> samples_per_dataset(std::span<const double> weights, std::int64_t target,
                                              double surplus);

}  // namespace colonnade::data
