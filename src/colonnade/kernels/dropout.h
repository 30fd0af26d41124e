// Fused bias, dropout and residual addition with a Philox mask; also multiplicative noise from the same
// random words.
#pragma once

#include <array>
#include <cstdint>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// y = residual + keep * scale * (x + bias) over rows [d0, d1, d2] of `cols` columns. Row i = (i0, i1, i2)
/// has index row_offset + i . row_steps and sample samples[i . sample_steps]; its column c is global column C
/// = col_offset + c. An element is kept if the upper 24 bits of word C % 4 of Philox{key}(index * groups + C
/// / 4, sample) are >= threshold. R: dtype of the residual stream, T or fp32; of a gradient of 16 bits if T
/// is fp32.
template <typename T, typename R = T>
struct Dropout {
  const T* x;
  const T* bias;      ///< [cols]; may be null
  const R* residual;  ///< may be null
  R* y;
  std::array<std::int64_t, 3> dims;
  std::array<std::int64_t, 3> row_steps;
  std::array<std::int64_t, 3> sample_steps;
  const std::int64_t* samples;
  std::int64_t row_offset;
  std::int64_t col_offset;
  std::int64_t cols;
  std::int64_t groups;  ///< Philox counters per row: global columns / 4, rounded up
  std::uint64_t key;
  std::uint32_t threshold;  ///< ceil(p * 2^24); 0 drops nothing
  double scale;             ///< 1 / (1 - p)
  /// If > 0, replaces keep * scale by 1 + noise (2 u - 1), u = upper 24 bits of the word / 2^24. If threshold
  /// is 0 too, no random words are generated.
  double noise = 0;
};

namespace cpu {
template <typename T, typename R = T>
void dropout(const Dropout<T, R>& a);
}  // namespace cpu

namespace cuda {
template <typename T, typename R = T>
void dropout(const Dropout<T, R>& a, CUstream_st* stream);
}  // namespace cuda

/// Kernels of this header (instantiate.h).
#define COL_DROPOUT_KERNELS(M) M(dropout, Dropout)

}  // namespace colonnade::kernels
