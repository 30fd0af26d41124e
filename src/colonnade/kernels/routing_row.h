// One row of routing.h, once for all devices. M gives `exp`, `log1p` and `sqrt`.
#pragma once

#include <cstdint>
#include <limits>

#include "colonnade/kernels/routing.h"

namespace colonnade::kernels {

inline constexpr double kSmallestSum = 1e-20;  // as in Megatron

template <typename M, typename T>
constexpr void score_row(const Route<T>& a, std::int64_t row) {
  const T* logits = a.logits + row * a.e;
  T* scores = a.scores + row * a.e;
  if (a.kind == ScoreKind::kSoftmax) {
    T top = logits[0];
    for (std::int64_t i = 1; i < a.e; ++i) top = logits[i] > top ? logits[i] : top;
    T sum = 0;
    for (std::int64_t i = 0; i < a.e; ++i) sum += scores[i] = M::exp(logits[i] - top);
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

/// A number and where it stands; the order of choice is by falling value, then by rising place.
template <typename T>
struct Ranked {
  T value;
  std::int64_t place;
};

template <typename T>
constexpr bool before(const Ranked<T>& a, const Ranked<T>& b) {
  return a.value > b.value || (a.value == b.value && a.place < b.place);
}

/// The first of places [begin, end) behind `last` in the order of choice among those that `allowed` lets
/// pass; a NaN comes last, as place `end` with nothing else left.
template <typename T, typename Value, typename Allowed>
constexpr Ranked<T> next_of(std::int64_t begin, std::int64_t end, const Ranked<T>* last, const Value& value,
                            const Allowed& allowed) {
  Ranked<T> best{T(0), end};
  for (std::int64_t i = begin; i < end; ++i) {
    const Ranked<T> one{value(i), i};
    if (one.value != one.value || !allowed(i) || (last != nullptr && !before(*last, one))) continue;
    if (best.place == end || before(one, best)) best = one;
  }
  return best;
}

/// Bit g of the result: group g may be chosen from.
template <typename T, typename Value>
constexpr std::uint64_t best_groups(const Route<T>& a, const Value& value) {
  const std::int64_t size = a.e / a.groups;
  T worth[kMaxExpertGroups] = {};
  const auto any = [](std::int64_t) { return true; };
  for (std::int64_t g = 0; g < a.groups; ++g) {
    Ranked<T> last{T(0), 0};
    for (std::int64_t i = 0; i < a.group_best; ++i) {
      const std::int64_t end = (g + 1) * size;
      last = next_of<T>(g * size, end, i == 0 ? nullptr : &last, value, any);
      if (last.place == end) break;
      worth[g] += last.value;
    }
  }
  std::uint64_t chosen = 0;
  Ranked<T> last{T(0), 0};
  for (std::int64_t i = 0; i < a.group_topk; ++i) {
    last = next_of<T>(
        0, a.groups, i == 0 ? nullptr : &last, [&](std::int64_t g) { return worth[g]; }, any);
    if (last.place == a.groups) break;
    chosen |= std::uint64_t{1} << static_cast<unsigned>(last.place);
  }
  return chosen;
}

/// A softmax over the chosen logits is chosen by logits: groups are worth sums of them.
template <typename T>
constexpr bool chooses_by_logits(const Route<T>& a) {
  return a.kind == ScoreKind::kSoftmax && a.normalise && a.bias == nullptr;
}

/// Weights of the chosen scores, whose sum is `sum`.
template <typename T>
constexpr void weigh_row(const Route<T>& a, std::int64_t row, T sum) {
  const T factor = a.normalise ? a.scaling / (sum + T(kSmallestSum)) : a.scaling;
  for (std::int64_t j = 0; j < a.k; ++j) a.weights[row * a.k + j] *= factor;
}

/// Scores and weights of a row whose experts are given.
template <typename M, typename T>
constexpr void assigned_row(const Route<T>& a, std::int64_t row) {
  score_row<M>(a, row);
  T sum = 0;
  for (std::int64_t j = row * a.k; j < (row + 1) * a.k; ++j)
    sum += a.weights[j] = a.scores[row * a.e + a.experts[j]];
  weigh_row(a, row, sum);
}

template <typename M, typename T>
constexpr void route_row(const Route<T>& a, std::int64_t row) {
  if (a.assigned) return assigned_row<M>(a, row);
  score_row<M>(a, row);
  const T* scores = a.scores + row * a.e;
  const T* by = chooses_by_logits(a) ? a.logits + row * a.e : scores;
  const auto value = [&](std::int64_t i) { return by[i] + (a.bias != nullptr ? a.bias[i] : T(0)); };
  const std::uint64_t groups = a.groups > 1 ? best_groups(a, value) : 1;
  const std::int64_t size = a.groups > 1 ? a.e / a.groups : a.e;
  const auto allowed = [&](std::int64_t i) { return (groups >> static_cast<unsigned>(i / size) & 1U) != 0; };
  T sum = 0;
  Ranked<T> last{T(0), 0};
  for (std::int64_t j = 0; j < a.k; ++j) {
    const Ranked<T> one = next_of<T>(0, a.e, j == 0 ? nullptr : &last, value, allowed);
    // Only a row with NaN runs out of experts: any one will do, its weight is NaN.
    const std::int64_t expert = one.place < a.e ? one.place : j;
    const T weight = one.place < a.e ? scores[expert] : std::numeric_limits<T>::quiet_NaN();
    if (one.place < a.e) last = one;
    a.experts[row * a.k + j] = expert;
    a.weights[row * a.k + j] = weight;
    sum += weight;
  }
  weigh_row(a, row, sum);
}

template <typename M, typename T>
constexpr void route_grad_row(const RouteGrad<T>& a, std::int64_t row) {
  const T* scores = a.scores + row * a.e;
  const std::int64_t* experts = a.experts + row * a.k;
  const T* grad_weights = a.grad_weights + row * a.k;
  T* grad = a.grad_logits + row * a.e;
  T sum = T(kSmallestSum);
  T dot = 0;
  for (std::int64_t j = 0; j < a.k; ++j) {
    sum += scores[experts[j]];
    dot += grad_weights[j] * scores[experts[j]];
  }
  // First the gradients of the scores.
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
