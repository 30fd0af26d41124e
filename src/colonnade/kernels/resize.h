// Image resizing as in PIL: weighted sums of 8-bit pixels along rows, then columns, each rounded to 8 bits.
#pragma once

#include <cstdint>

namespace colonnade::kernels {

/// Resampling along one axis: out[i] = clip8((2^21 + sum_k weight[i, k] * in[first[i] + k]) >> 22) for k <
/// count[i]. Weights are 22-bit fixed point and sum to about 2^22.
struct ResizeAxis {
  const std::int32_t* first;
  const std::int32_t* count;
  const std::int32_t* weight;  ///< [outputs, stride]
  std::int64_t stride;
  std::int64_t outputs;
};

/// Horizontal pass: in [rows, width, 3] -> out [rows, axis.outputs, 3]. scratch: 16 * width bytes.
struct ResizeRows {
  const std::uint8_t* in;
  std::uint8_t* out;
  std::uint8_t* scratch;
  std::int64_t rows, width;
  ResizeAxis axis;
};

/// Vertical pass: in [height, row_bytes] -> out [axis.outputs, row_bytes]. scratch: row_bytes elements.
/// axis.first counts from the first row of `in`.
struct ResizeColumns {
  const std::uint8_t* in;
  std::uint8_t* out;
  std::int32_t* scratch;
  std::int64_t row_bytes;
  ResizeAxis axis;
};

namespace cpu {
void resize_rows(const ResizeRows& a);
void resize_columns(const ResizeColumns& a);
}  // namespace cpu

}  // namespace colonnade::kernels
