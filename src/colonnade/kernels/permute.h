// Rows of tokens to rows by expert and back. Every output row is written by one thread or block, from rows
// that it looks up: sums have a fixed order on every device.
#pragma once

#include <cstdint>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// y[p, :] = x[from[p], :] * weight[p]; 0 where from[p] is below 0; a weight of null is 1.
template <typename T>
struct TakeRows {
  const T* x;
  const std::int64_t* from;  ///< [rows]
  const Acc<T>* weight;      ///< [rows] or null
  T* y;                      ///< [rows, h]
  std::int64_t rows;
  std::int64_t h;
};

/// y[t, :] = sum over j < k of x[place[t, j], :] * weight[t, j], in the order of j; places below 0 give
/// nothing, a weight of null is 1. The sum is rounded once.
template <typename T>
struct SumRows {
  const T* x;
  const std::int64_t* place;  ///< [n, k]
  const Acc<T>* weight;       ///< [n, k] or null
  T* y;                       ///< [n, h]
  std::int64_t n;
  std::int64_t k;
  std::int64_t h;
};

/// y[t, j] = the dot product of a[t, :] and x[place[t, j], :]; 0 for places below 0.
template <typename T>
struct DotRows {
  const T* a;  ///< [n, h]
  const T* x;
  const std::int64_t* place;  ///< [n, k]
  Acc<T>* y;                  ///< [n, k]
  std::int64_t n;
  std::int64_t k;
  std::int64_t h;
};

namespace cpu {
template <typename T>
void take_rows(const TakeRows<T>& a);
template <typename T>
void sum_rows(const SumRows<T>& a);
template <typename T>
void dot_rows(const DotRows<T>& a);
}  // namespace cpu

namespace cuda {
template <typename T>
void take_rows(const TakeRows<T>& a, CUstream_st* stream);
template <typename T>
void sum_rows(const SumRows<T>& a, CUstream_st* stream);
template <typename T>
void dot_rows(const DotRows<T>& a, CUstream_st* stream);
}  // namespace cuda

}  // namespace colonnade::kernels
