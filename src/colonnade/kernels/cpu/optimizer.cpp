// Optimizer updates and reductions on the CPU: each array is read and written once.
#include "colonnade/kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "colonnade/kernels/cpu/parallel.h"
#include "colonnade/kernels/cpu/vector.h"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cpu {
namespace {

constexpr std::int64_t kBlock = 1 << 14;

template <typename C, typename T>
[[gnu::always_inline]] inline void convert(const T* param, void* copy, std::int64_t n) {
  C* out = static_cast<C*>(copy);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = C(static_cast<float>(param[i]));
}

/// Writes the rounded copy of param[0, n) at element `at` of `copy`.
template <typename T>
COL_CLONES void copy_out(const T* param, void* copy, CopyType type, std::int64_t at, std::int64_t n) {
  if (type == CopyType::kFloat32) convert<float>(param, static_cast<float*>(copy) + at, n);
  if (type == CopyType::kBFloat16) convert<BFloat16>(param, static_cast<BFloat16*>(copy) + at, n);
  if (type == CopyType::kHalf) convert<Half>(param, static_cast<Half*>(copy) + at, n);
}

template <typename T>
COL_CLONES void adam_range(const AdamSpan<T>& s, const AdamStep& step, std::int64_t begin, std::int64_t end) {
  const T grad_scale = T(step.grad_scale);
  const T l2 = T(step.decoupled ? 0.0 : step.weight_decay);
  const T keep = T(step.decoupled ? 1.0 - step.lr * step.weight_decay : 1.0);
  const T beta1 = T(step.beta1);
  const T beta2 = T(step.beta2);
  const T one_minus_beta1 = T(1.0 - step.beta1);
  const T one_minus_beta2 = T(1.0 - step.beta2);
  const T step_size = T(step.lr / step.bias1);
  const T inv_sqrt_bias2 = T(1.0 / std::sqrt(step.bias2));
  const T eps = T(step.eps);
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const T g = s.grad[i] * grad_scale + l2 * s.param[i];
    const T m = beta1 * s.m[i] + one_minus_beta1 * g;
    const T v = beta2 * s.v[i] + one_minus_beta2 * g * g;
    s.m[i] = m;
    s.v[i] = v;
    s.param[i] = s.param[i] * keep - step_size * m / (std::sqrt(v) * inv_sqrt_bias2 + eps);
  }
}

template <typename T>
COL_CLONES void sgd_range(const SgdSpan<T>& s, const SgdStep& step, std::int64_t begin, std::int64_t end) {
  const T grad_scale = T(step.grad_scale);
  const T decay = T(step.weight_decay);
  const T lr = T(step.lr);
  if (s.momentum == nullptr) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i)
      s.param[i] -= lr * (s.grad[i] * grad_scale + decay * s.param[i]);
    return;
  }
  const T momentum = T(step.first ? 0.0 : step.momentum);
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const T g = s.grad[i] * grad_scale + decay * s.param[i];
    const T buffer = step.first ? g : momentum * s.momentum[i] + g;
    s.momentum[i] = buffer;
    s.param[i] -= lr * buffer;
  }
}

template <typename T>
COL_CLONES void lion_range(const LionSpan<T>& s, const LionStep& step, std::int64_t begin, std::int64_t end) {
  const T grad_scale = T(step.grad_scale);
  const T keep = T(1.0 - step.lr * step.weight_decay);
  const T lr = T(step.lr);
  const T beta1 = T(step.beta1);
  const T beta2 = T(step.beta2);
  const T one_minus_beta1 = T(1.0 - step.beta1);
  const T one_minus_beta2 = T(1.0 - step.beta2);
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const T g = s.grad[i] * grad_scale;
    const T update = beta1 * s.m[i] + one_minus_beta1 * g;
    const T sign = T(update > T(0)) - T(update < T(0));
    s.m[i] = beta2 * s.m[i] + one_minus_beta2 * g;
    s.param[i] = s.param[i] * keep - lr * sign;
  }
}

/// Calls f(span, begin, end) for blocks of all spans, distributed over threads as if concatenated.
template <typename Span, typename F>
void for_each_block(const std::vector<Span>& spans, const F& f) {
  std::vector<std::int64_t> first(spans.size() + 1, 0);
  for (std::size_t i = 0; i < spans.size(); ++i) first[i + 1] = first[i] + (spans[i].n + kBlock - 1) / kBlock;
  parallel_for(first.back(), 1, [&](std::int64_t begin, std::int64_t end) {
    auto at =
        static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), begin) - first.begin() - 1);
    for (std::int64_t block = begin; block < end; ++block) {
      while (block >= first[at + 1]) ++at;
      const std::int64_t from = (block - first[at]) * kBlock;
      f(spans[at], from, std::min(from + kBlock, spans[at].n));
    }
  });
}

template <typename T>
COL_CLONES double squares(const T* x, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

template <typename T>
COL_CLONES std::int64_t zeros(const T* x, std::int64_t n) {
  std::int64_t count = 0;
#pragma omp simd reduction(+ : count)
  for (std::int64_t i = 0; i < n; ++i) count += x[i] == T(0) ? 1 : 0;
  return count;
}

template <typename T>
COL_CLONES bool any_nonfinite(const T* x, std::int64_t n) {
  std::int64_t bad = 0;
#pragma omp simd reduction(+ : bad)
  for (std::int64_t i = 0; i < n; ++i) bad += x[i] - x[i] == T(0) ? 0 : 1;  // inf - inf is NaN
  return bad != 0;
}

/// Results of f over fixed blocks of [0, n), in order.
template <typename R, typename F>
std::vector<R> map_blocks(std::int64_t n, const F& f) {
  std::vector<R> results(static_cast<std::size_t>((n + kBlock - 1) / kBlock));
  parallel_for(static_cast<std::int64_t>(results.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block)
      results[static_cast<std::size_t>(block)] = f(block * kBlock, std::min(kBlock, n - block * kBlock));
  });
  return results;
}

}  // namespace

template <typename T>
void adam(const AdamSpans<T>& spans, const AdamStep& step) {
  for_each_block(spans, [&](const AdamSpan<T>& s, std::int64_t begin, std::int64_t end) {
    adam_range(s, step, begin, end);
    copy_out(s.param + begin, s.copy, s.copy_type, begin, end - begin);
  });
}

template <typename T>
void sgd(const SgdSpans<T>& spans, const SgdStep& step) {
  for_each_block(spans, [&](const SgdSpan<T>& s, std::int64_t begin, std::int64_t end) {
    sgd_range(s, step, begin, end);
    copy_out(s.param + begin, s.copy, s.copy_type, begin, end - begin);
  });
}

template <typename T>
void lion(const LionSpans<T>& spans, const LionStep& step) {
  for_each_block(spans, [&](const LionSpan<T>& s, std::int64_t begin, std::int64_t end) {
    lion_range(s, step, begin, end);
    copy_out(s.param + begin, s.copy, s.copy_type, begin, end - begin);
  });
}

template <typename T>
double sum_squares(const T* x, std::int64_t n) {
  double sum = 0;
  for (const double block_result :
       map_blocks<double>(n, [&](std::int64_t at, std::int64_t m) { return squares(x + at, m); }))
    sum += block_result;
  return sum;
}

template <typename T>
std::int64_t count_zeros(const T* x, std::int64_t n) {
  std::int64_t sum = 0;
  for (const auto block_result :
       map_blocks<std::int64_t>(n, [&](std::int64_t at, std::int64_t m) { return zeros(x + at, m); }))
    sum += block_result;
  return sum;
}

template <typename T>
bool has_nonfinite(const T* x, std::int64_t n) {
  const auto results =
      map_blocks<char>(n, [&](std::int64_t at, std::int64_t m) { return any_nonfinite(x + at, m); });
  return std::any_of(results.begin(), results.end(), [](char bad) { return bad != 0; });
}

#define COL_INSTANTIATE(T)                                   \
  template void adam(const AdamSpans<T>&, const AdamStep&);  \
  template void sgd(const SgdSpans<T>&, const SgdStep&);     \
  template void lion(const LionSpans<T>&, const LionStep&);  \
  template double sum_squares(const T*, std::int64_t);       \
  template std::int64_t count_zeros(const T*, std::int64_t); \
  template bool has_nonfinite(const T*, std::int64_t);
COL_FOR_EACH_WIDE_DTYPE(COL_INSTANTIATE)
#undef COL_INSTANTIATE

}  // namespace colonnade::kernels::cpu
