// From router logits to experts and weights.
// Source: Megatron's core/transformer/moe/{moe_utils,router}.py; DeepSeek-V3 2024 (groups, bias that only
// selects); Clark et al. 2022, "Unified scaling laws for routed language models" (Sinkhorn assignment).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/kernels/routing.h"

namespace colonnade::ops {

struct RouteArgs {
  std::int64_t k = 2;  ///< experts per token
  kernels::ScoreKind kind = kernels::ScoreKind::kSoftmax;
  bool normalise = true;    ///< normalize weights over the chosen experts
  std::int64_t groups = 1;  ///< number of expert groups; experts are chosen within the best group_topk
  std::int64_t group_topk = 1;
  std::int64_t group_best = 1;  ///< a group is scored by the sum of its best group_best experts
  double scaling = 1;
  at::Tensor
      bias;  ///< [e] in the logits' dtype, added to the scores for expert selection only; undefined: none
  at::Tensor
      assigned;  ///< int64 [n, k], given experts in [0, e), distinct per row; undefined: select by score
};

struct Routing {
  at::Tensor experts;         ///< int64 [n, k], by descending score; e: dropped
  at::Tensor weights;         ///< [n, k]
  at::Tensor scores;          ///< [n, e], scores of all experts
  std::int64_t capacity = 0;  ///< maximum number of these tokens per expert; 0: unlimited
};

/// logits [n, e], fp32 or float64. Weights and scores are differentiable; the selection is not. Experts are
/// undefined on meta.
Routing route(const at::Tensor& logits, const RouteArgs& args);

/// Balanced assignment: experts int64 [n, k] of logits [n, e] with about equal load. Per row the k largest of
/// c_ij d_j r_i, c = exp(logits) in fp32, by descending value, with r and d from the Sinkhorn iteration
///
///     r_i = 1 / (n (sum_j d_j c_ij + 1e-8)),    d_j = 1 / (e (sum_i r_i c_ij + 1e-8)),    d = 1 at first,
///
/// until the mean change of d is at most 1e-4, or for 200 iterations. Not differentiable. Synchronizes with
/// the device in each iteration. Experts are undefined on meta.
at::Tensor sinkhorn_experts(const at::Tensor& logits, std::int64_t k);

}  // namespace colonnade::ops
