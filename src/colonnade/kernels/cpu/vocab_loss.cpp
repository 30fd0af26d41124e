// Logit statistics and gradient on the CPU: a piece of a row at a time, so memory is read once.
#include "colonnade/kernels/vocab_loss.h"

#include <algorithm>
#include <limits>

#include "colonnade/kernels/cpu/parallel.h"
#include "colonnade/kernels/cpu/vector.h"

namespace colonnade::kernels::cpu {
namespace {

constexpr std::int64_t kPiece = 2048;

template <typename T>
COL_CLONES void stats_rows(const LogitStats<T>& a, std::int64_t begin, std::int64_t end) {
  using A = Acc<T>;
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  for (std::int64_t row = begin; row < end; ++row) {
    const T* logits = a.logits + row * a.cols;
    A max = kLowest;
    A sum = 0;
    for (std::int64_t from = 0; from < a.valid; from += kPiece) {
      const std::int64_t to = std::min(from + kPiece, a.valid);
      A top = kLowest;
#pragma omp simd reduction(max : top)
      for (std::int64_t c = from; c < to; ++c) {
        const A value = load(logits[c]);
        top = value > top ? value : top;
      }
      if (top > max) {
        sum *= std::exp(max - top);  // a NaN stays
        max = top;
      }
      const A origin = max == kLowest ? A(0) : max;  // -inf - -inf is NaN
      A piece = 0;
#pragma omp simd reduction(+ : piece)
      for (std::int64_t c = from; c < to; ++c) piece += Math::exp(load(logits[c]) - origin);
      sum += piece;
    }
    const std::int64_t target = a.targets[row] - a.first;
    a.max[row] = max;
    a.sum_exp[row] = sum;
    a.target[row] = target >= 0 && target < a.valid ? load(logits[target]) : A(0);
  }
}

template <typename T>
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
    for (std::int64_t c = 0; c < a.valid; ++c) logits[c] = T(Math::exp(load(logits[c]) - max) * factor);
    for (std::int64_t c = a.valid; c < a.cols; ++c) logits[c] = T(A(0));
    if (mine) logits[target] = T(Math::exp(at_target - max) * factor - grad);
  }
}

}  // namespace

template <typename T>
void logit_stats(const LogitStats<T>& a) {
  parallel_for(a.rows, row_grain(a.cols),
               [&](std::int64_t begin, std::int64_t end) { stats_rows(a, begin, end); });
}

template <typename T>
void logit_gradient(const LogitGradient<T>& a) {
  parallel_for(a.rows, row_grain(a.cols),
               [&](std::int64_t begin, std::int64_t end) { gradient_rows(a, begin, end); });
}

template void logit_stats(const LogitStats<float>&);
template void logit_stats(const LogitStats<double>&);
template void logit_stats(const LogitStats<BFloat16>&);
template void logit_stats(const LogitStats<Half>&);
template void logit_gradient(const LogitGradient<float>&);
template void logit_gradient(const LogitGradient<double>&);
template void logit_gradient(const LogitGradient<BFloat16>&);
template void logit_gradient(const LogitGradient<Half>&);

}  // namespace colonnade::kernels::cpu
