// Rotary position embedding between strided tensors; a plain copy without a table.
#pragma once

#include <cstdint>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// Strides in elements along s, b and n; the d elements of a head are contiguous.
struct HeadStrides {
  std::int64_t s;
  std::int64_t b;
  std::int64_t n;
};

/// For each head, with c = cos[p, i] and t = sin[p, i] at its position p and pair i of (u, v):
///   (u, v) -> (u c - v t, v c + u t), or the inverse rotation if `inverse` (backward pass).
/// Pairs are (i, i + rotated/2), or (2i, 2i + 1) if interleaved; elements from `rotated` on are copied.
template <typename T>
struct Rotary {
  const T* x;
  HeadStrides from;
  T* y;
  HeadStrides to;
  std::int64_t s;
  std::int64_t b;
  std::int64_t n;
  std::int64_t d;
  std::int64_t rotated;  ///< even, <= d; 0 copies
  const float* cos;      ///< [length, rotated/2]
  const float* sin;
  const std::int64_t* positions;  ///< [s, b]; null: 0..s-1
  bool interleaved;
  bool inverse;
};

namespace cpu {
template <typename T>
void rotary(const Rotary<T>& a);
}  // namespace cpu

namespace cuda {
template <typename T>
void rotary(const Rotary<T>& a, CUstream_st* stream);
}  // namespace cuda

/// Kernels of this header (instantiate.h).
#define COL_ROTARY_KERNELS(M) M(rotary, Rotary)

}  // namespace colonnade::kernels
