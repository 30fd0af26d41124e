// Column sums of a matrix, in an order independent of the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// Number of nearly equal row blocks; blocks are summed separately and then added in order.
constexpr std::int64_t column_blocks(std::int64_t rows) { return std::clamp<std::int64_t>(rows / 16, 1, 64); }

/// First row of block `index`; block_begin(rows, index + 1) is its end.
constexpr std::int64_t block_begin(std::int64_t rows, std::int64_t index) {
  return rows * index / column_blocks(rows);
}

/// sum[c] = sum_r x[r, c], in Acc<T>.
template <typename T>
struct ColumnSum {
  const T* x;
  Acc<T>* sum;      ///< [cols]
  Acc<T>* partial;  ///< workspace, column_blocks(rows) * cols
  std::int64_t rows;
  std::int64_t cols;
};

namespace cpu {
template <typename T>
void column_sum(const ColumnSum<T>& a);
}  // namespace cpu

namespace cuda {
template <typename T>
void column_sum(const ColumnSum<T>& a, CUstream_st* stream);
}  // namespace cuda

/// Kernels of this header (instantiate.h).
#define COL_REDUCE_KERNELS(M) M(column_sum, ColumnSum)

}  // namespace colonnade::kernels
