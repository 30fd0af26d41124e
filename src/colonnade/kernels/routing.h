// From router logits to the chosen experts and their weights, and back.
// Source: Megatron's core/transformer/moe/moe_utils.py (topk_routing_with_score_function,
// group_limited_topk).
#pragma once

#include <cstdint>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// What a logit becomes: softmax over all experts of a token, 1 / (1 + e^-x), sqrt(ln(1 + e^x)).
enum class ScoreKind : unsigned char { kSoftmax, kSigmoid, kSqrtSoftplus };

inline constexpr int kMaxExpertGroups = 64;

/// Per row: scores of all experts; the k experts of the largest score + bias, by falling value, the lower
/// number first where two are equal; their weights scaling * score, over the sum of the k scores when
/// `normalise`. A normalised softmax without bias chooses by logits instead of scores. With groups > 1
/// experts compete within the `group_topk` best of as many equal groups; a group is worth the sum of its
/// `group_best` largest values of that kind. With `assigned`, `experts` is read, and bias and groups are not.
template <typename T>
struct Route {
  const T* logits;        ///< [n, e]
  const T* bias;          ///< [e], for the choice alone; null: none
  T* scores;              ///< [n, e]
  std::int64_t* experts;  ///< [n, k]; each in [0, e) where they are assigned
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
  bool assigned = false;  ///< experts are given
};

/// grad_logits out of the gradients of the weights and, where it is not null, of the scores.
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

}  // namespace colonnade::kernels
