// Column sums on CUDA: adjacent threads sum adjacent columns of a block of rows.
#include "colonnade/kernels/reduce.h"

#include "colonnade/kernels/cuda/common.cuh"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cuda {
namespace {

template <typename T>
__global__ void sum_block(ColumnSum<T> a) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (c >= a.cols) return;
  Acc<T> sum = 0;
  for (std::int64_t row = block_begin(a.rows, blockIdx.y); row < block_begin(a.rows, blockIdx.y + 1); ++row)
    sum += load(a.x[row * a.cols + c]);
  a.partial[std::int64_t{blockIdx.y} * a.cols + c] = sum;
}

template <typename T>
__global__ void add_blocks(ColumnSum<T> a) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (c >= a.cols) return;
  Acc<T> sum = 0;
  for (std::int64_t block = 0; block < column_blocks(a.rows); ++block) sum += a.partial[block * a.cols + c];
  a.sum[c] = sum;
}

}  // namespace

template <typename T>
void column_sum(const ColumnSum<T>& a, CUstream_st* stream) {
  const auto tiles = static_cast<unsigned>((a.cols + kBlock - 1) / kBlock);
  sum_block<<<dim3(tiles, static_cast<unsigned>(column_blocks(a.rows))), kBlock, 0, stream>>>(a);
  add_blocks<<<tiles, kBlock, 0, stream>>>(a);
  check_launch("column_sum");
}

COL_REDUCE_KERNELS(COL_INSTANTIATE_CUDA)

}  // namespace colonnade::kernels::cuda
