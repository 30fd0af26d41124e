// What relative positions add to the scores of attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

struct Distances {
  std::int64_t buckets = 32;  ///< rows of the table
  std::int64_t maximum = 128;
  bool both_ways = false;  ///< later keys are told from earlier ones; else all later ones are as near as 0
};

/// The bucket of each key's distance j - i from each query's place, int64 [s, t]: nearer ones have a bucket
/// each, half of them; those further have buckets that grow as the logarithm of the distance up to `maximum`,
/// and the last one has all that are further still. In fp32 as Transformers and Megatron, whose buckets these
/// are. Source: Raffel et al. 2020, section 2.1; Megatron's
/// core/models/common/embeddings/relative_pos_embedding.py.
at::Tensor distance_buckets(std::int64_t s, std::int64_t t, const Distances& distances, at::Device device);

/// table [buckets, n] -> [1, n, s, t]; its gradient goes to main_grad.
at::Tensor relative_bias(tensor::Parameter& table, std::int64_t s, std::int64_t t,
                         const Distances& distances);

}  // namespace colonnade::ops
