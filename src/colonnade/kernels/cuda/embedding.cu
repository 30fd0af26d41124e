// Embedding on CUDA. Backward: the block at the first of consecutive equal tokens sums all of them in order,
// so no two blocks write the same row.
#include "colonnade/kernels/embedding.h"

#include "colonnade/kernels/cuda/common.cuh"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cuda {
namespace {

template <typename T>
__global__ void gather(Embedding<T> a) {
  const std::int64_t i = blockIdx.x;
  const std::int64_t row = a.tokens[(i % a.b) * a.s + i / a.b] - a.first;
  const bool mine = row >= 0 && row < a.count;
  for (std::int64_t c = threadIdx.x; c < a.h; c += kBlock)
    a.y[i * a.h + c] = mine ? a.table[row * a.h + c] : T(Acc<T>(0));
}

template <typename T>
__global__ void scatter(EmbeddingGrad<T> a) {
  const std::int64_t begin = blockIdx.x;
  const std::int64_t token = a.tokens[begin];
  const std::int64_t row = token - a.first;
  if (row < 0 || row >= a.count || (begin > 0 && a.tokens[begin - 1] == token)) return;
  const std::int64_t c = std::int64_t{blockIdx.y} * kBlock + threadIdx.x;
  if (c >= a.h) return;
  Acc<T> sum = a.grad[row * a.h + c];
  for (std::int64_t i = begin; i < a.n && a.tokens[i] == token; ++i)
    sum += load(a.grad_y[a.order[i] * a.h + c]);
  a.grad[row * a.h + c] = sum;
}

}  // namespace

template <typename T>
void embedding(const Embedding<T>& a, CUstream_st* stream) {
  gather<<<static_cast<unsigned>(a.s * a.b), kBlock, 0, stream>>>(a);
  check_launch("embedding");
}

template <typename T>
void embedding_grad(const EmbeddingGrad<T>& a, CUstream_st* stream) {
  const dim3 grid(static_cast<unsigned>(a.n), static_cast<unsigned>((a.h + kBlock - 1) / kBlock));
  scatter<<<grid, kBlock, 0, stream>>>(a);
  check_launch("embedding_grad");
}

COL_EMBEDDING_KERNELS(COL_INSTANTIATE_CUDA)

}  // namespace colonnade::kernels::cuda
