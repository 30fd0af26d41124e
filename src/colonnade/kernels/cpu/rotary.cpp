// Rotary embedding on the CPU, one head at a time.
#include "colonnade/kernels/rotary.h"

#include "colonnade/kernels/cpu/parallel.h"
#include "colonnade/kernels/cpu/vector.h"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cpu {
namespace {

/// Rotates one head; `sign` is +1 forward, -1 backward.
template <bool kInterleaved, typename T>
[[gnu::always_inline]] inline void rotate_head(const Rotary<T>& a, const T* x, T* y, const float* cos,
                                               const float* sin, Acc<T> sign) {
  using A = Acc<T>;
  const std::int64_t half = a.rotated / 2;
  constexpr std::int64_t kStep = kInterleaved ? 2 : 1;
  const std::int64_t pair_stride = kInterleaved ? 1 : half;
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const A u = load(x[i * kStep]);
    const A v = load(x[i * kStep + pair_stride]);
    const A c = A(cos[i]);
    const A t = sign * A(sin[i]);
    y[i * kStep] = T(u * c - v * t);
    y[i * kStep + pair_stride] = T(v * c + u * t);
  }
#pragma omp simd
  for (std::int64_t i = a.rotated; i < a.d; ++i) y[i] = x[i];
}

template <bool kInterleaved, typename T>
COL_CLONES void rotary_rows(const Rotary<T>& a, std::int64_t begin, std::int64_t end) {
  const Acc<T> sign = a.inverse ? Acc<T>(-1) : Acc<T>(1);
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t s = row / a.b;
    const std::int64_t b = row % a.b;
    const std::int64_t at = (a.positions != nullptr ? a.positions[row] : s) * (a.rotated / 2);
    const T* x = a.x + s * a.from.s + b * a.from.b;
    T* y = a.y + s * a.to.s + b * a.to.b;
    for (std::int64_t n = 0; n < a.n; ++n)
      rotate_head<kInterleaved>(a, x + n * a.from.n, y + n * a.to.n, a.cos + at, a.sin + at, sign);
  }
}

}  // namespace

template <typename T>
void rotary(const Rotary<T>& a) {
  parallel_for(a.s * a.b, row_grain(a.n * a.d), [&](std::int64_t begin, std::int64_t end) {
    if (a.interleaved)
      rotary_rows<true>(a, begin, end);
    else
      rotary_rows<false>(a, begin, end);
  });
}

COL_ROTARY_KERNELS(COL_INSTANTIATE_CPU)

}  // namespace colonnade::kernels::cpu
