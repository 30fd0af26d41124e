// From router logits to experts and weights.
// Source: Megatron's core/transformer/moe/{moe_utils,router}.py; DeepSeek-V3 2024 (groups, bias that only
// selects); Clark et al. 2022, "Unified scaling laws for routed language models" (Sinkhorn assignment).
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
  at::Tensor assigned;  ///< int64 [n, k], the experts, in [0, e) and unequal in a row; undefined: by scores
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

/// Experts int64 [n, k] of logits [n, e] that load all experts about equally: per row the k largest of
/// c_ij d_j r_i, c = exp(logits) in fp32, by falling value, with r and d from Sinkhorn's iteration
///
///     r_i = 1 / (n (sum_j d_j c_ij + 1e-8)),    d_j = 1 / (e (sum_i r_i c_ij + 1e-8)),    d = 1 at first,
///
/// until the mean change of d is at most 1e-4, or for 200 rounds where fp32 does not get there. Not
/// differentiable. The host waits for the device in each round. On meta the experts are undefined numbers.
at::Tensor sinkhorn_experts(const at::Tensor& logits, std::int64_t k);

}  // namespace colonnade::ops
