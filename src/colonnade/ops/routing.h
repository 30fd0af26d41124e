// From router logits to experts and weights.
// Source: Megatron's core/transformer/moe/moe_utils.py; DeepSeek-V3 2024 (groups, bias that only selects).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/kernels/routing.h"

namespace colonnade::ops {

struct RouteArgs {
  std::int64_t k = 2;  ///< experts of a token
  kernels::ScoreKind kind = kernels::ScoreKind::kSoftmax;
  bool normalise = true;    ///< weights are shares of the chosen scores
  std::int64_t groups = 1;  ///< experts compete within the best group_topk of these
  std::int64_t group_topk = 1;
  std::int64_t group_best = 1;  ///< a group is worth the sum of so many of its scores
  double scaling = 1;
  at::Tensor bias;  ///< [e] in the logits' type: added to the scores for the choice alone; undefined: none
};

struct Routing {
  at::Tensor experts;         ///< int64 [n, k], by falling score; e: dropped, the pair goes nowhere
  at::Tensor weights;         ///< [n, k]
  at::Tensor scores;          ///< [n, e], of all experts
  std::int64_t capacity = 0;  ///< rows that an expert takes of these tokens at most; 0: all
};

/// logits [n, e], fp32 or float64. Weights and scores have gradients; the choice has none. On meta the
/// experts are undefined numbers.
Routing route(const at::Tensor& logits, const RouteArgs& args);

}  // namespace colonnade::ops
