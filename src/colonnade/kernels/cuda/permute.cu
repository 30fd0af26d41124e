// Row permutation on CUDA: one thread block per output row or dot product.
#include "colonnade/kernels/permute.h"

#include "colonnade/kernels/cuda/common.cuh"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cuda {
namespace {

template <typename T>
__global__ void gather(GatherRows<T> a) {
  const std::int64_t p = blockIdx.x;
  const T* from = a.x + a.from[p] * a.h;
  T* to = a.y + p * a.h;
  const bool none = a.from[p] < 0;
  for (std::int64_t c = threadIdx.x; c < a.h; c += kBlock)
    to[c] = none ? T(0) : a.weight != nullptr ? T(load(from[c]) * a.weight[p]) : from[c];
}

template <typename T>
__global__ void sum(SumRows<T> a) {
  const std::int64_t t = blockIdx.x;
  for (std::int64_t c = threadIdx.x; c < a.h; c += kBlock) {
    Acc<T> value = 0;
    for (std::int64_t j = 0; j < a.k; ++j) {
      const std::int64_t row = a.from[t * a.k + j];
      if (row < 0) continue;
      value += load(a.x[row * a.h + c]) * (a.weight != nullptr ? a.weight[t * a.k + j] : Acc<T>(1));
    }
    a.y[t * a.h + c] = T(value);
  }
}

template <typename T>
__global__ void dots(DotRows<T> a) {
  const std::int64_t pair = blockIdx.x;
  const std::int64_t row = a.from[pair];
  Acc<T> value = 0;
  if (row >= 0)
    for (std::int64_t c = threadIdx.x; c < a.h; c += kBlock)
      value += load(a.a[pair / a.k * a.h + c]) * load(a.x[row * a.h + c]);
  value = block_sum(value);
  if (threadIdx.x == 0) a.y[pair] = value;
}

}  // namespace

template <typename T>
void gather_rows(const GatherRows<T>& a, CUstream_st* stream) {
  gather<<<static_cast<unsigned>(a.rows), kBlock, 0, stream>>>(a);
  check_launch("gather_rows");
}

template <typename T>
void sum_rows(const SumRows<T>& a, CUstream_st* stream) {
  sum<<<static_cast<unsigned>(a.n), kBlock, 0, stream>>>(a);
  check_launch("sum_rows");
}

template <typename T>
void dot_rows(const DotRows<T>& a, CUstream_st* stream) {
  dots<<<static_cast<unsigned>(a.n * a.k), kBlock, 0, stream>>>(a);
  check_launch("dot_rows");
}

COL_PERMUTE_KERNELS(COL_INSTANTIATE_CUDA)

}  // namespace colonnade::kernels::cuda
