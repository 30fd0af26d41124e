// Bias, dropout and residual in one pass, with a mask out of Philox; and noise from the same words.
#pragma once

#include <array>
#include <cstdint>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// y = residual + keep * scale * (x + bias) over rows [d0, d1, d2] of `cols` columns. Row (i0, i1, i2)
/// has the number row_offset + i . row_steps and belongs to samples[i . sample_steps]; its column c is
/// global column C = col_offset + c. Kept when the upper 24 bits of word C % 4 of
/// Philox{key}(number * groups + C / 4, sample) are >= threshold.
template <typename T>
struct Dropout {
  const T* x;
  const T* bias;      ///< [cols]; may be null
  const T* residual;  ///< may be null
  T* y;
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
  /// Above 0, in place of keep * scale: 1 + noise (2 u - 1), u the word's upper 24 bits / 2^24. With both 0
  /// nothing is drawn.
  double noise = 0;
};

namespace cpu {
template <typename T>
void dropout(const Dropout<T>& a);
}  // namespace cpu

namespace cuda {
template <typename T>
void dropout(const Dropout<T>& a, CUstream_st* stream);
}  // namespace cuda

}  // namespace colonnade::kernels
