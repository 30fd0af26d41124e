// Image resizing on the CPU in integer arithmetic, so all instruction sets produce identical bytes.
#include "colonnade/kernels/resize.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "colonnade/kernels/cpu/vector.h"

namespace colonnade::kernels::cpu {
namespace {

constexpr int kBits = 22;
constexpr std::int32_t kHalf = 1 << (kBits - 1);
constexpr std::int64_t kRows = 4;  // rows at a time: with 4 bytes per pixel they fill a vector

[[gnu::always_inline]] inline std::uint8_t clip(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kBits, 0, 255));
}

/// Interleaves the pixels of up to 4 rows as [width, 4 rows, 4 bytes]; the fourth byte is unused.
[[gnu::always_inline]] inline void interleave_rows(const ResizeRows& a, std::int64_t row, std::int64_t rows) {
  for (std::int64_t r = 0; r < kRows; ++r) {
    const std::uint8_t* in = a.in + (row + std::min(r, rows - 1)) * a.width * 3;
    std::uint8_t* out = a.scratch + 4 * r;
    for (std::int64_t x = 0; x < a.width - 1; ++x) std::memcpy(out + 16 * x, in + 3 * x, 4);
    std::memcpy(out + 16 * (a.width - 1), in + 3 * (a.width - 1), 3);
  }
}

COL_CLONES void resize_rows_simd(const ResizeRows& a) {
  for (std::int64_t row = 0; row < a.rows; row += kRows) {
    const std::int64_t rows = std::min(kRows, a.rows - row);
    interleave_rows(a, row, rows);
    for (std::int64_t i = 0; i < a.axis.outputs; ++i) {
      std::array<std::int32_t, 16> sum;
      sum.fill(kHalf);
      const std::uint8_t* in = a.scratch + std::int64_t{16} * a.axis.first[i];
      const std::int32_t* weight = a.axis.weight + i * a.axis.stride;
      for (std::int32_t k = 0; k < a.axis.count[i]; ++k, in += 16)
        for (std::size_t lane = 0; lane < 16; ++lane) sum[lane] += weight[k] * std::int32_t{in[lane]};
      for (std::int64_t r = 0; r < rows; ++r) {
        std::uint8_t* out = a.out + ((row + r) * a.axis.outputs + i) * 3;
        for (std::int64_t c = 0; c < 3; ++c) out[c] = clip(sum[static_cast<std::size_t>(4 * r + c)]);
      }
    }
  }
}

COL_CLONES void resize_columns_simd(const ResizeColumns& a) {
  for (std::int64_t i = 0; i < a.axis.outputs; ++i) {
    std::fill_n(a.scratch, a.row_bytes, kHalf);
    const std::int32_t* weight = a.axis.weight + i * a.axis.stride;
    const std::uint8_t* in = a.in + a.axis.first[i] * a.row_bytes;
    for (std::int32_t k = 0; k < a.axis.count[i]; ++k, in += a.row_bytes) {
      const std::int32_t w = weight[k];
#pragma omp simd
      for (std::int64_t x = 0; x < a.row_bytes; ++x) a.scratch[x] += w * std::int32_t{in[x]};
    }
    std::uint8_t* out = a.out + i * a.row_bytes;
#pragma omp simd
    for (std::int64_t x = 0; x < a.row_bytes; ++x) out[x] = clip(a.scratch[x]);
  }
}

}  // namespace

void resize_rows(const ResizeRows& a) { resize_rows_simd(a); }
void resize_columns(const ResizeColumns& a) { resize_columns_simd(a); }

}  // namespace colonnade::kernels::cpu
