// Optimizer updates and reductions on the CPU: each array is read and written once.
#include "colonnade/kernels/optimizer.h"

#include <algorithm>
#include <array>
#include <atomic>
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

constexpr std::int64_t kScratch = 1 << 11;  // elements converted at a time: 32 KiB of fp32 values

template <typename S>
[[gnu::always_inline]] inline void load_values(const void* data, std::int64_t at, std::int64_t n, float scale,
                                               float* to) {
  const S* from = static_cast<const S*>(data) + at;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]) * scale;
}

/// Values of the stored elements [at, at + n).
COL_CLONES void load_stored(const void* data, StoredType type, float scale, std::int64_t at, std::int64_t n,
                            float* to) {
  if (type == StoredType::kFloat32) load_values<float>(data, at, n, scale, to);
  if (type == StoredType::kBFloat16) load_values<BFloat16>(data, at, n, scale, to);
  if (type == StoredType::kHalf) load_values<Half>(data, at, n, scale, to);
  if (type == StoredType::kFloat8) load_values<Float8>(data, at, n, scale, to);
}

template <typename S>
[[gnu::always_inline]] inline void store_values(const float* from, float inverse_scale, void* data,
                                                std::int64_t at, std::int64_t n) {
  S* to = static_cast<S*>(data) + at;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = S(from[i] * inverse_scale);
}

COL_CLONES void store_stored(const float* from, StoredType type, float inverse_scale, void* data,
                             std::int64_t at, std::int64_t n) {
  if (type == StoredType::kBFloat16) store_values<BFloat16>(from, inverse_scale, data, at, n);
  if (type == StoredType::kHalf) store_values<Half>(from, inverse_scale, data, at, n);
  if (type == StoredType::kFloat8) store_values<Float8>(from, inverse_scale, data, at, n);
}

COL_CLONES float max_magnitude(const float* x, std::int64_t n) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

/// to = max(to, value), from any thread.
void raise_to(float& to, float value) {
  const std::atomic_ref<float> shared(to);
  float now = shared.load();
  while (now < value && !shared.compare_exchange_weak(now, value)) {
  }
}

using ScratchValues = std::array<float, kScratch>;

float old_scale(const StoredValues& x) { return x.scale != nullptr ? x.scale[0] : 1.0F; }

/// fp32 values of [at, at + n): those of an fp32 tensor in place, others converted to `scratch`.
float* values_of(const StoredValues& x, std::int64_t at, std::int64_t n, ScratchValues& scratch) {
  if (x.type == StoredType::kFloat32) return static_cast<float*>(x.data) + at;
  load_stored(x.data, x.type, old_scale(x), at, n, scratch.data());
  return scratch.data();
}

const float* gradient_of(const StoredAdamSpan& s, std::int64_t at, std::int64_t n, ScratchValues& scratch) {
  if (s.grad_type == StoredType::kFloat32) return static_cast<const float*>(s.grad) + at;
  load_stored(s.grad, s.grad_type, 1.0F, at, n, scratch.data());
  return scratch.data();
}

float new_scale(const StoredValues& x) { return x.scale != nullptr ? scale_for(x.scale[1], x.type) : 1.0F; }

/// Stores values that values_of() converted, with the new scale.
void store_back(const StoredValues& x, const float* values, std::int64_t at, std::int64_t n) {
  if (x.type != StoredType::kFloat32) store_stored(values, x.type, 1.0F / new_scale(x), x.data, at, n);
}

/// Updates [at, at + n), at most kScratch elements.
void stored_adam_part(const StoredAdamSpan& s, const AdamStep& step, std::int64_t at, std::int64_t n) {
  ScratchValues p_scratch, g_scratch, m_scratch, v_scratch;
  float* p = values_of(s.param, at, n, p_scratch);
  const float* g = gradient_of(s, at, n, g_scratch);
  float* m = values_of(s.m, at, n, m_scratch);
  float* v = values_of(s.v, at, n, v_scratch);
  adam_range<float>({p, g, m, v, n}, step, 0, n);
  store_back(s.param, p, at, n);
  store_back(s.m, m, at, n);
  store_back(s.v, v, at, n);
  if (s.copy_type == CopyType::kNone) return;
  if (s.param.type != StoredType::kFloat32)
    load_stored(s.param.data, s.param.type, new_scale(s.param), at, n, p);
  const std::int64_t width = s.copy_type == CopyType::kFloat32 ? 4 : 2;
  copy_out(p, static_cast<char*>(s.copy) + at * width, s.copy_type, 0, n);
}

/// Raises the workspaces of the scales to the largest new magnitudes in [at, at + n); changes no values.
void find_largest(const StoredAdamSpan& s, const AdamStep& step, std::int64_t at, std::int64_t n) {
  const std::array<const StoredValues*, 3> tensors{&s.param, &s.m, &s.v};
  std::array<ScratchValues, 3> values;
  ScratchValues g_scratch;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    load_stored(tensors[i]->data, tensors[i]->type, old_scale(*tensors[i]), at, n, values[i].data());
  const float* g = gradient_of(s, at, n, g_scratch);
  adam_range<float>({values[0].data(), g, values[1].data(), values[2].data(), n}, step, 0, n);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i]->scale != nullptr) raise_to(tensors[i]->scale[1], max_magnitude(values[i].data(), n));
}

/// Calls f(span, at, n) for parts of at most kScratch elements of all spans.
template <typename F>
void for_each_part(const StoredAdamSpans& spans, const F& f) {
  for_each_block(spans, [&](const StoredAdamSpan& s, std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += kScratch) f(s, at, std::min(kScratch, end - at));
  });
}

template <typename T>
COL_CLONES double squares(const T* x, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i)
    sum += static_cast<double>(load(x[i])) * static_cast<double>(load(x[i]));
  return sum;
}

template <typename T>
COL_CLONES std::int64_t zeros(const T* x, std::int64_t n) {
  std::int64_t count = 0;
#pragma omp simd reduction(+ : count)
  for (std::int64_t i = 0; i < n; ++i) count += load(x[i]) == 0 ? 1 : 0;
  return count;
}

template <typename T>
COL_CLONES bool any_nonfinite(const T* x, std::int64_t n) {
  std::int64_t bad = 0;
#pragma omp simd reduction(+ : bad)
  for (std::int64_t i = 0; i < n; ++i) bad += load(x[i]) - load(x[i]) == 0 ? 0 : 1;  // inf - inf is NaN
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

void stored_adam(const StoredAdamSpans& spans, const AdamStep& step) {
  for_each_part(spans, [&](const StoredAdamSpan& s, std::int64_t at, std::int64_t n) {
    if (s.has_scale()) find_largest(s, step, at, n);
  });
  for_each_part(spans, [&](const StoredAdamSpan& s, std::int64_t at, std::int64_t n) {
    stored_adam_part(s, step, at, n);
  });
  for (const StoredAdamSpan& s : spans)
    for (const StoredValues& x : {s.param, s.m, s.v}) {
      if (x.scale == nullptr) continue;
      x.scale[0] = new_scale(x);
      x.scale[1] = 0;
    }
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

#define COL_INSTANTIATE(T)                                  \
  template void adam(const AdamSpans<T>&, const AdamStep&); \
  template void sgd(const SgdSpans<T>&, const SgdStep&);    \
  template void lion(const LionSpans<T>&, const LionStep&);
COL_FOR_EACH_WIDE_DTYPE(COL_INSTANTIATE)
#undef COL_INSTANTIATE

#define COL_INSTANTIATE(T)                                   \
  template double sum_squares(const T*, std::int64_t);       \
  template std::int64_t count_zeros(const T*, std::int64_t); \
  template bool has_nonfinite(const T*, std::int64_t);
COL_FOR_EACH_GRADIENT_DTYPE(COL_INSTANTIATE)
#undef COL_INSTANTIATE

}  // namespace colonnade::kernels::cpu
