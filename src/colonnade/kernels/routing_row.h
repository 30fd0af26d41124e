// One row of routing.h, shared by all devices. M provides `exp`, `log1p` and `sqrt`.
#pragma once

#include <cstdint>
#include <limits>

#include "colonnade/kernels/routing.h"

namespace colonnade::kernels {

inline constexpr double kSumEpsilon = 1e-20;  // as in Megatron

template <typename M, typename T>
constexpr void score_row(const Route<T>& a, std::int64_t row) {
  const T* logits = a.logits + row * a.e;
  T* scores = a.scores + row * a.e;
  if (a.kind == ScoreKind::kSoftmax) {
    T max = logits[0];
    for (std::int64_t i = 1; i < a.e; ++i) max = logits[i] > max ? logits[i] : max;
    T sum = 0;
    for (std::int64_t i = 0; i < a.e; ++i) sum += scores[i] = M::exp(logits[i] - max);
    for (std::int64_t i = 0; i < a.e; ++i) scores[i] /= sum;
    return;
  }
  for (std::int64_t i = 0; i < a.e; ++i) {
    const T x = logits[i];
    if (a.kind == ScoreKind::kSigmoid)
      scores[i] = T(1) / (T(1) + M::exp(-x));
    else  // ln(1 + e^x) without overflow
      scores[i] = M::sqrt((x > T(0) ? x : T(0)) + M::log1p(M::exp(x > T(0) ? -x : x)));
  }
}

/// A value and its index; selection order is by descending value, then ascending index.
template <typename T>
struct Ranked {
  T value;
  std::int64_t index;
};

template <typename T>
constexpr bool precedes(const Ranked<T>& a, const Ranked<T>& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

/// The allowed index in [begin, end) that follows `last` in selection order; NaNs are skipped, and the index
/// is `end` if none is left.
template <typename T, typename Value, typename Allowed>
constexpr Ranked<T> next_best(std::int64_t begin, std::int64_t end, const Ranked<T>* last, const Value& value,
                              const Allowed& allowed) {
  Ranked<T> best{T(0), end};
  for (std::int64_t i = begin; i < end; ++i) {
    const Ranked<T> candidate{value(i), i};
    if (candidate.value != candidate.value || !allowed(i) || (last != nullptr && !precedes(*last, candidate)))
      continue;
    if (best.index == end || precedes(candidate, best)) best = candidate;
  }
  return best;
}

/// Bit mask of the selected groups.
template <typename T, typename Value>
constexpr std::uint64_t best_groups(const Route<T>& a, const Value& value) {
  const std::int64_t size = a.e / a.groups;
  T group_score[kMaxExpertGroups] = {};
  const auto any = [](std::int64_t) { return true; };
  for (std::int64_t g = 0; g < a.groups; ++g) {
    Ranked<T> last{T(0), 0};
    for (std::int64_t i = 0; i < a.group_best; ++i) {
      const std::int64_t end = (g + 1) * size;
      last = next_best<T>(g * size, end, i == 0 ? nullptr : &last, value, any);
      if (last.index == end) break;
      group_score[g] += last.value;
    }
  }
  std::uint64_t selected = 0;
  Ranked<T> last{T(0), 0};
  for (std::int64_t i = 0; i < a.group_topk; ++i) {
    last = next_best<T>(
        0, a.groups, i == 0 ? nullptr : &last, [&](std::int64_t g) { return group_score[g]; }, any);
    if (last.index == a.groups) break;
    selected |= std::uint64_t{1} << static_cast<unsigned>(last.index);
  }
  return selected;
}

/// Whether selection uses logits, as for a softmax over the selected experts; group scores then sum logits.
template <typename T>
constexpr bool selects_by_logits(const Route<T>& a) {
  return a.kind == ScoreKind::kSoftmax && a.normalise && a.bias == nullptr;
}

/// Scales the weights of a row whose scores sum to `sum`.
template <typename T>
constexpr void scale_weights(const Route<T>& a, std::int64_t row, T sum) {
  const T factor = a.normalise ? a.scaling / (sum + T(kSumEpsilon)) : a.scaling;
  for (std::int64_t j = 0; j < a.k; ++j) a.weights[row * a.k + j] *= factor;
}

/// Scores and weights of a row with assigned experts.
template <typename M, typename T>
constexpr void assigned_row(const Route<T>& a, std::int64_t row) {
  score_row<M>(a, row);
  T sum = 0;
  for (std::int64_t j = row * a.k; j < (row + 1) * a.k; ++j)
    sum += a.weights[j] = a.scores[row * a.e + a.experts[j]];
  scale_weights(a, row, sum);
}

template <typename M, typename T>
constexpr void route_row(const Route<T>& a, std::int64_t row) {
  if (a.assigned) return assigned_row<M>(a, row);
  score_row<M>(a, row);
  const T* scores = a.scores + row * a.e;
  const T* selection = selects_by_logits(a) ? a.logits + row * a.e : scores;
  const auto value = [&](std::int64_t i) { return selection[i] + (a.bias != nullptr ? a.bias[i] : T(0)); };
  const std::uint64_t groups = a.groups > 1 ? best_groups(a, value) : 1;
  const std::int64_t size = a.groups > 1 ? a.e / a.groups : a.e;
  const auto allowed = [&](std::int64_t i) { return (groups >> static_cast<unsigned>(i / size) & 1U) != 0; };
  T sum = 0;
  Ranked<T> last{T(0), 0};
  for (std::int64_t j = 0; j < a.k; ++j) {
    const Ranked<T> candidate = next_best<T>(0, a.e, j == 0 ? nullptr : &last, value, allowed);
    // A row runs out of experts only if it has NaNs: take any expert, with weight NaN.
    const std::int64_t expert = candidate.index < a.e ? candidate.index : j;
    const T weight = candidate.index < a.e ? scores[expert] : std::numeric_limits<T>::quiet_NaN();
    if (candidate.index < a.e) last = candidate;
    a.experts[row * a.k + j] = expert;
    a.weights[row * a.k + j] = weight;
    sum += weight;
  }
  scale_weights(a, row, sum);
}

template <typename M, typename T>
constexpr void route_grad_row(const RouteGrad<T>& a, std::int64_t row) {
  const T* scores = a.scores + row * a.e;
  const std::int64_t* experts = a.experts + row * a.k;
  const T* grad_weights = a.grad_weights + row * a.k;
  T* grad = a.grad_logits + row * a.e;
  T sum = T(kSumEpsilon);
  T dot = 0;
  for (std::int64_t j = 0; j < a.k; ++j) {
    sum += scores[experts[j]];
    dot += grad_weights[j] * scores[experts[j]];
  }
  // Gradients of the scores.
  for (std::int64_t i = 0; i < a.e; ++i)
    grad[i] = a.grad_scores != nullptr ? a.grad_scores[row * a.e + i] : T(0);
  for (std::int64_t j = 0; j < a.k; ++j)
    grad[experts[j]] +=
        a.normalise ? a.scaling * (grad_weights[j] - dot / sum) / sum : a.scaling * grad_weights[j];
  if (a.kind == ScoreKind::kSoftmax) {
    T mean = 0;
    for (std::int64_t i = 0; i < a.e; ++i) mean += grad[i] * scores[i];
    for (std::int64_t i = 0; i < a.e; ++i) grad[i] = scores[i] * (grad[i] - mean);
    return;
  }
  for (std::int64_t i = 0; i < a.e; ++i) {
    const T s = scores[i];
    if (a.kind == ScoreKind::kSigmoid)
      grad[i] *= s * (T(1) - s);
    else  // sigmoid(x) = 1 - e^(-s^2)
      grad[i] *= s > T(0) ? (T(1) - M::exp(-s * s)) / (T(2) * s) : T(0);
  }
}

}  // namespace colonnade::kernels
