// Relative attention bias of T5.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// Bucketing of relative positions.
struct RelativePositionBuckets {
  std::int64_t buckets = 32;        ///< number of buckets, rows of the table
  std::int64_t max_distance = 128;  ///< max_distance distance
  bool bidirectional = false;       ///< separate buckets for later keys; otherwise they count as distance 0
};

/// Bucket of each relative position j - i of key j and query i, int64 [s, t]. Half of the buckets hold one
/// small distance each; the others grow logarithmically up to `max_distance`, and the last one holds all
/// larger distances. Computed in fp32, equal to Transformers and Megatron. Source: Raffel et al. 2020,
/// section 2.1; Megatron's core/models/common/embeddings/relative_pos_embedding.py.
at::Tensor relative_position_buckets(std::int64_t s, std::int64_t t, const RelativePositionBuckets& distances,
                                     at::Device device);

/// table [buckets, n] -> [1, n, s, t]; its gradient goes to main_grad.
at::Tensor relative_bias(tensor::Parameter& table, std::int64_t s, std::int64_t t,
                         const RelativePositionBuckets& distances);

}  // namespace colonnade::ops
