// Router: selected experts and their weights from logits, and the gradient.
// Source: Megatron's core/transformer/moe/moe_utils.py (topk_routing_with_score_function,
// group_limited_topk).
#pragma once

#include <cstdint>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// Router score function: softmax over all experts of a token, 1 / (1 + e^-x), sqrt(ln(1 + e^x)).
enum class ScoreKind : unsigned char { kSoftmax, kSigmoid, kSqrtSoftplus };

inline constexpr int kMaxExpertGroups = 64;

/// Per row: scores of all experts; the k experts of largest score + bias in descending order, ties by lower
/// index; their weights scaling * score, divided by the sum of the k scores if `normalise`. A normalized
/// softmax without bias selects by logits instead of scores. With groups > 1, experts are selected within the
/// best `group_topk` of `groups` equal groups; a group's score is the sum of its `group_best` largest
/// selection values. With `assigned`, `experts` is an input, and bias and groups are unused.
template <typename T>
struct Route {
  const T* logits;        ///< [n, e]
  const T* bias;          ///< [e], for selection only; null: none
  T* scores;              ///< [n, e]
  std::int64_t* experts;  ///< [n, k]; input in [0, e) if `assigned`
  T* weights;             ///< [n, k]
  std::int64_t n;
  std::int64_t e;
  std::int64_t k;
  ScoreKind kind;
  bool normalise;
  std::int64_t groups;
  std::int64_t group_topk;
  std::int64_t group_best;
  T scaling;
  bool assigned = false;  ///< `experts` is an input
};

/// grad_logits from the gradients of the weights and, unless null, of the scores.
template <typename T>
struct RouteGrad {
  const T* scores;              ///< [n, e]
  const std::int64_t* experts;  ///< [n, k]
  const T* grad_weights;        ///< [n, k]
  const T* grad_scores;         ///< [n, e] or null
  T* grad_logits;               ///< [n, e]
  std::int64_t n;
  std::int64_t e;
  std::int64_t k;
  ScoreKind kind;
  bool normalise;
  T scaling;
};

namespace cpu {
template <typename T>
void route(const Route<T>& a);
template <typename T>
void route_grad(const RouteGrad<T>& a);
}  // namespace cpu

namespace cuda {
template <typename T>
void route(const Route<T>& a, CUstream_st* stream);
template <typename T>
void route_grad(const RouteGrad<T>& a, CUstream_st* stream);
}  // namespace cuda

/// Kernels of this header (instantiate.h).
#define COL_ROUTING_KERNELS(M) M(route, Route) M(route_grad, RouteGrad)

}  // namespace colonnade::kernels
