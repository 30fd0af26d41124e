// Row permutation on the CPU, parallel over output rows.
#include "colonnade/kernels/permute.h"

#include <cstring>

#include "colonnade/kernels/cpu/parallel.h"
#include "colonnade/kernels/cpu/vector.h"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cpu {
namespace {

template <typename T>
COL_CLONES void scale_row(T* to, const T* from, Acc<T> weight, std::int64_t h) {
#pragma omp simd
  for (std::int64_t c = 0; c < h; ++c) to[c] = T(load(from[c]) * weight);
}

/// Number of columns whose sums stay in registers or L1 cache.
constexpr std::int64_t kColumns = 256;

template <typename T>
COL_CLONES void sum_row(const SumRows<T>& a, std::int64_t t, std::int64_t begin, std::int64_t end) {
  Acc<T> sums[kColumns] = {};
  for (std::int64_t j = 0; j < a.k; ++j) {
    const std::int64_t row = a.from[t * a.k + j];
    if (row < 0) continue;
    const T* from = a.x + row * a.h + begin;
    const Acc<T> weight = a.weight != nullptr ? a.weight[t * a.k + j] : Acc<T>(1);
#pragma omp simd
    for (std::int64_t c = 0; c < end - begin; ++c) sums[c] += load(from[c]) * weight;
  }
  T* to = a.y + t * a.h + begin;
#pragma omp simd
  for (std::int64_t c = 0; c < end - begin; ++c) to[c] = T(sums[c]);
}

template <typename T>
COL_CLONES Acc<T> dot(const T* a, const T* b, std::int64_t h) {
  Acc<T> sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < h; ++c) sum += load(a[c]) * load(b[c]);
  return sum;
}

}  // namespace

template <typename T>
void gather_rows(const GatherRows<T>& a) {
  parallel_for(a.rows, row_grain(a.h), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const T* from = a.x + a.from[p] * a.h;
      if (a.from[p] < 0)
        std::memset(static_cast<void*>(a.y + p * a.h), 0, static_cast<std::size_t>(a.h) * sizeof(T));
      else if (a.weight == nullptr)
        std::memcpy(a.y + p * a.h, from, static_cast<std::size_t>(a.h) * sizeof(T));
      else
        scale_row(a.y + p * a.h, from, a.weight[p], a.h);
    }
  });
}

template <typename T>
void sum_rows(const SumRows<T>& a) {
  parallel_for(a.n, row_grain(a.h * a.k), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t c = 0; c < a.h; c += kColumns) sum_row(a, t, c, std::min(c + kColumns, a.h));
  });
}

template <typename T>
void dot_rows(const DotRows<T>& a) {
  parallel_for(a.n, row_grain(a.h * a.k), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t j = 0; j < a.k; ++j) {
        const std::int64_t row = a.from[t * a.k + j];
        a.y[t * a.k + j] = row < 0 ? Acc<T>(0) : dot(a.a + t * a.h, a.x + row * a.h, a.h);
      }
  });
}

COL_PERMUTE_KERNELS(COL_INSTANTIATE_CPU)

}  // namespace colonnade::kernels::cpu
