// RMSNorm and LayerNorm on CUDA: one thread block per row; weight gradients: one thread block per block of
// rows.
#include "colonnade/kernels/norm.h"

#include "colonnade/kernels/cuda/common.cuh"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cuda {
namespace {

template <bool kCenter, typename T, typename S>
__global__ void forward(Norm<T, S> a) {
  using A = Acc<T>;
  const std::int64_t row = blockIdx.x;
  const S* x = a.x + row * a.cols;
  if (a.added != nullptr) {
    S* sum = a.sum + row * a.cols;  // each thread reads back only what it wrote
    const T* added = a.added + row * a.cols;
    for (std::int64_t c = threadIdx.x; c < a.cols; c += kBlock) sum[c] = S(load(x[c]) + load(added[c]));
    x = sum;
  }
  A mean = 0;
  if (kCenter) {
    for (std::int64_t c = threadIdx.x; c < a.cols; c += kBlock) mean += load(x[c]);
    mean = block_sum(mean) / A(a.cols);
  }
  A squares = 0;
  for (std::int64_t c = threadIdx.x; c < a.cols; c += kBlock)
    squares += (load(x[c]) - mean) * (load(x[c]) - mean);
  const A rstd = A(1) / sqrt(block_sum(squares) / A(a.cols) + A(a.eps));
  const A shift = a.zero_centered ? A(1) : A(0);
  for (std::int64_t c = threadIdx.x; c < a.cols; c += kBlock) {
    const A y = (load(x[c]) - mean) * rstd * (load(a.weight[c]) + shift);
    a.y[row * a.cols + c] = T(a.bias != nullptr ? y + load(a.bias[c]) : y);
  }
  if (threadIdx.x == 0) {
    a.rstd[row] = rstd;
    if (kCenter) a.mean[row] = mean;
  }
}

template <bool kCenter, typename T, typename S>
__global__ void backward_x(NormGrad<T, S> a) {
  using A = Acc<T>;
  const std::int64_t row = blockIdx.x;
  const S* x = a.x + row * a.cols;
  const T* grad_y = a.grad_y + row * a.cols;
  const A rstd = a.rstd[row];
  const A mean = kCenter ? a.mean[row] : A(0);
  const A shift = a.zero_centered ? A(1) : A(0);
  A dot = 0;
  A total = 0;
  for (std::int64_t c = threadIdx.x; c < a.cols; c += kBlock) {
    const A scaled = load(grad_y[c]) * (load(a.weight[c]) + shift);
    dot += scaled * (load(x[c]) - mean) * rstd;
    if (kCenter) total += scaled;
  }
  dot = block_sum(dot) / A(a.cols);
  if (kCenter) total = block_sum(total) / A(a.cols);
  for (std::int64_t c = threadIdx.x; c < a.cols; c += kBlock) {
    const A scaled = load(grad_y[c]) * (load(a.weight[c]) + shift);
    A grad = rstd * (scaled - total - (load(x[c]) - mean) * rstd * dot);
    if (a.grad_sum != nullptr) grad += load(a.grad_sum[row * a.cols + c]);
    a.grad_x[row * a.cols + c] = S(grad);
  }
}

/// Thread block (column tile, block of rows): adjacent threads read adjacent columns.
template <bool kCenter, typename T, typename S>
__global__ void backward_weight(NormGrad<T, S> a) {
  using A = Acc<T>;
  const std::int64_t c = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (c >= a.cols) return;
  A weight = 0;
  A bias = 0;
  for (std::int64_t row = block_begin(a.rows, blockIdx.y); row < block_begin(a.rows, blockIdx.y + 1); ++row) {
    const A g = load(a.grad_y[row * a.cols + c]);
    weight += g * (load(a.x[row * a.cols + c]) - (kCenter ? a.mean[row] : A(0))) * a.rstd[row];
    bias += g;
  }
  a.partial[std::int64_t{blockIdx.y} * a.cols + c] = weight;
  if (a.grad_bias != nullptr) a.partial[(column_blocks(a.rows) + blockIdx.y) * a.cols + c] = bias;
}

template <typename T, typename S>
__global__ void add_blocks(NormGrad<T, S> a) {
  using A = Acc<T>;
  const std::int64_t c = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (c >= a.cols) return;
  const std::int64_t blocks = column_blocks(a.rows);
  A weight = 0;
  A bias = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    weight += a.partial[block * a.cols + c];
    if (a.grad_bias != nullptr) bias += a.partial[(blocks + block) * a.cols + c];
  }
  a.grad_weight[c] = weight;
  if (a.grad_bias != nullptr) a.grad_bias[c] = bias;
}

template <bool kCenter, typename T, typename S>
void launch_grad(const NormGrad<T, S>& a, CUstream_st* stream) {
  const auto tiles = static_cast<unsigned>((a.cols + kBlock - 1) / kBlock);
  backward_x<kCenter><<<static_cast<unsigned>(a.rows), kBlock, 0, stream>>>(a);
  backward_weight<kCenter>
      <<<dim3(tiles, static_cast<unsigned>(column_blocks(a.rows))), kBlock, 0, stream>>>(a);
  add_blocks<<<tiles, kBlock, 0, stream>>>(a);
}

}  // namespace

template <typename T, typename S>
void norm(const Norm<T, S>& a, CUstream_st* stream) {
  const auto rows = static_cast<unsigned>(a.rows);
  if (a.mean != nullptr)
    forward<true><<<rows, kBlock, 0, stream>>>(a);
  else
    forward<false><<<rows, kBlock, 0, stream>>>(a);
  check_launch("norm");
}

template <typename T, typename S>
void norm_grad(const NormGrad<T, S>& a, CUstream_st* stream) {
  if (a.mean != nullptr)
    launch_grad<true>(a, stream);
  else
    launch_grad<false>(a, stream);
  check_launch("norm_grad");
}

COL_NORM_KERNELS(COL_INSTANTIATE_CUDA_MIXED)

}  // namespace colonnade::kernels::cuda
