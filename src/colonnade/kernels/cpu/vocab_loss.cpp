// Logit statistics and gradient on the CPU, in chunks of a row, so memory is read once.
#include "colonnade/kernels/vocab_loss.h"

#include <algorithm>
#include <limits>

#include "colonnade/kernels/cpu/parallel.h"
#include "colonnade/kernels/cpu/vector.h"
#include "colonnade/kernels/formulas.h"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cpu {
namespace {

constexpr std::int64_t kChunk = 2048;

/// A logit and its derivative; the cap is a template argument to keep loops branch-free.
template <bool kCapped, typename A>
[[gnu::always_inline]] inline ValueDerivative<A> logit_of(A stored, A cap) {
  if constexpr (kCapped) return soft_cap<Math>(stored, cap);
  return {stored, A(1)};
}

template <bool kCapped, typename T>
COL_CLONES void stats_rows(const LogitStats<T>& a, std::int64_t begin, std::int64_t end) {
  using A = Acc<T>;
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  for (std::int64_t row = begin; row < end; ++row) {
    const T* logits = a.logits + row * a.cols;
    A max = kLowest;
    A sum = 0;
    for (std::int64_t from = 0; from < a.valid; from += kChunk) {
      const std::int64_t to = std::min(from + kChunk, a.valid);
      A top = kLowest;
#pragma omp simd reduction(max : top)
      for (std::int64_t c = from; c < to; ++c) {
        const A value = load(logits[c]);
        top = value > top ? value : top;
      }
      top = logit_of<kCapped>(top, a.cap).value;  // the cap is monotonic
      if (top > max) {
        sum *= std::exp(max - top);  // a NaN sum stays NaN
        max = top;
      }
      const A origin = max == kLowest ? A(0) : max;  // -inf - -inf is NaN
      A chunk_sum = 0;
#pragma omp simd reduction(+ : chunk_sum)
      for (std::int64_t c = from; c < to; ++c)
        chunk_sum += Math::exp(logit_of<kCapped>(load(logits[c]), a.cap).value - origin);
      sum += chunk_sum;
    }
    const std::int64_t target = a.targets[row] - a.first;
    a.max[row] = max;
    a.sum_exp[row] = sum;
    const bool mine = target >= 0 && target < a.valid;
    a.target[row] = mine ? logit_of<kCapped>(load(logits[target]), a.cap).value : A(0);
  }
}

template <bool kCapped, typename T>
COL_CLONES void gradient_rows(const LogitGradient<T>& a, std::int64_t begin, std::int64_t end) {
  using A = Acc<T>;
  for (std::int64_t row = begin; row < end; ++row) {
    T* logits = a.logits + row * a.cols;
    const A max = a.max[row];
    const A grad = a.grad[row];
    const A factor = grad / a.sum_exp[row];
    const std::int64_t target = a.targets[row] - a.first;
    const bool mine = target >= 0 && target < a.valid;
    const A at_target = mine ? load(logits[target]) : A(0);
#pragma omp simd
    for (std::int64_t c = 0; c < a.valid; ++c) {
      const ValueDerivative<A> logit = logit_of<kCapped>(load(logits[c]), a.cap);
      logits[c] = T(Math::exp(logit.value - max) * factor * logit.derivative);
    }
    for (std::int64_t c = a.valid; c < a.cols; ++c) logits[c] = T(A(0));
    if (!mine) continue;
    const ValueDerivative<A> logit = logit_of<kCapped>(at_target, a.cap);
    logits[target] = T((Math::exp(logit.value - max) * factor - grad) * logit.derivative);
  }
}

}  // namespace

template <typename T>
void logit_stats(const LogitStats<T>& a) {
  parallel_for(a.rows, row_grain(a.cols), [&](std::int64_t begin, std::int64_t end) {
    a.cap > 0 ? stats_rows<true>(a, begin, end) : stats_rows<false>(a, begin, end);
  });
}

template <typename T>
void logit_gradient(const LogitGradient<T>& a) {
  parallel_for(a.rows, row_grain(a.cols), [&](std::int64_t begin, std::int64_t end) {
    a.cap > 0 ? gradient_rows<true>(a, begin, end) : gradient_rows<false>(a, begin, end);
  });
}

COL_VOCAB_LOSS_KERNELS(COL_INSTANTIATE_CPU)

}  // namespace colonnade::kernels::cpu
