// Gathers, sums and dot products of rows by index: token permutation and back. Each output row is written by
// one thread or block that gathers its inputs, so sums have a fixed order on every device.
#pragma once

#include <cstdint>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// y[p, :] = x[from[p], :] * weight[p]; 0 if from[p] < 0. Null weight means 1.
template <typename T>
struct GatherRows {
  const T* x;
  const std::int64_t* from;  ///< [rows]
  const Acc<T>* weight;      ///< [rows] or null
  T* y;                      ///< [rows, h]
  std::int64_t rows;
  std::int64_t h;
};

/// y[t, :] = sum over j < k of x[from[t, j], :] * weight[t, j], in the order of j, skipping from < 0 and
/// rounded once. Null weight means 1.
template <typename T>
struct SumRows {
  const T* x;
  const std::int64_t* from;  ///< [n, k]
  const Acc<T>* weight;      ///< [n, k] or null
  T* y;                      ///< [n, h]
  std::int64_t n;
  std::int64_t k;
  std::int64_t h;
};

/// y[t, j] = dot product of a[t, :] and x[from[t, j], :]; 0 if from < 0.
template <typename T>
struct DotRows {
  const T* a;  ///< [n, h]
  const T* x;
  const std::int64_t* from;  ///< [n, k]
  Acc<T>* y;                 ///< [n, k]
  std::int64_t n;
  std::int64_t k;
  std::int64_t h;
};

namespace cpu {
template <typename T>
void gather_rows(const GatherRows<T>& a);
template <typename T>
void sum_rows(const SumRows<T>& a);
template <typename T>
void dot_rows(const DotRows<T>& a);
}  // namespace cpu

namespace cuda {
template <typename T>
void gather_rows(const GatherRows<T>& a, CUstream_st* stream);
template <typename T>
void sum_rows(const SumRows<T>& a, CUstream_st* stream);
template <typename T>
void dot_rows(const DotRows<T>& a, CUstream_st* stream);
}  // namespace cuda

/// Kernels of this header (instantiate.h).
#define COL_PERMUTE_KERNELS(M) M(gather_rows, GatherRows) M(sum_rows, SumRows) M(dot_rows, DotRows)

}  // namespace colonnade::kernels
