// Column sums on the CPU.
#include "colonnade/kernels/reduce.h"

#include "colonnade/kernels/cpu/parallel.h"
#include "colonnade/kernels/cpu/vector.h"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cpu {
namespace {

template <typename T>
COL_CLONES void sum_rows(const T* x, std::int64_t rows, std::int64_t cols, Acc<T>* sum) {
  for (std::int64_t c = 0; c < cols; ++c) sum[c] = 0;
  for (std::int64_t row = 0; row < rows; ++row, x += cols) {
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) sum[c] += load(x[c]);
  }
}

}  // namespace

template <typename T>
void column_sum(const ColumnSum<T>& a) {
  const std::int64_t blocks = column_blocks(a.rows);
  const std::int64_t grain =
      std::max<std::int64_t>(1, row_grain(a.cols) * blocks / std::max<std::int64_t>(a.rows, 1));
  parallel_for(blocks, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block_begin(a.rows, block);
      sum_rows(a.x + begin * a.cols, block_begin(a.rows, block + 1) - begin, a.cols,
               a.partial + block * a.cols);
    }
  });
  sum_rows<Acc<T>>(a.partial, blocks, a.cols, a.sum);
}

COL_REDUCE_KERNELS(COL_INSTANTIATE_CPU)

}  // namespace colonnade::kernels::cpu
