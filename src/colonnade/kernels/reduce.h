// Sums down the columns of a matrix, in an order that no number of threads changes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// Rows are summed in this many blocks of nearly equal length, and the blocks in order.
constexpr std::int64_t column_blocks(std::int64_t rows) { return std::clamp<std::int64_t>(rows / 16, 1, 64); }

/// First row of block `index`; that of the next block is the end.
constexpr std::int64_t block_begin(std::int64_t rows, std::int64_t index) {
  return rows * index / column_blocks(rows);
}

/// sum[c] = sum_r x[r, c], in Acc<T>.
template <typename T>
struct ColumnSum {
  const T* x;
  Acc<T>* sum;      ///< [cols]
  Acc<T>* partial;  ///< work space, column_blocks(rows) * cols
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

}  // namespace colonnade::kernels
