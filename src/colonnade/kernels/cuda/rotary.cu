// Rotary embedding on CUDA: one thread block per row (s, b), threads over the pairs of all heads.
#include "colonnade/kernels/rotary.h"

#include "colonnade/kernels/cuda/common.cuh"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cuda {
namespace {

template <typename T>
__global__ void rotary_rows(Rotary<T> a) {
  using A = Acc<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t s = row / a.b;
  const std::int64_t b = row % a.b;
  const std::int64_t half = a.rotated / 2;
  const std::int64_t rest = a.d - a.rotated;
  const std::int64_t at = (a.positions != nullptr ? a.positions[row] : s) * half;
  const T* x_row = a.x + s * a.from.s + b * a.from.b;
  T* y_row = a.y + s * a.to.s + b * a.to.b;
  for (std::int64_t i = threadIdx.x; i < a.n * (half + rest); i += kBlock) {
    const std::int64_t n = i / (half + rest);
    const std::int64_t pair = i % (half + rest);
    const T* x = x_row + n * a.from.n;
    T* y = y_row + n * a.to.n;
    if (pair >= half) {
      y[half + pair] = x[half + pair];
      continue;
    }
    const std::int64_t first = a.interleaved ? 2 * pair : pair;
    const std::int64_t second = a.interleaved ? first + 1 : first + half;
    const A u = load(x[first]);
    const A v = load(x[second]);
    const A c = A(a.cos[at + pair]);
    const A t = a.inverse ? -A(a.sin[at + pair]) : A(a.sin[at + pair]);
    y[first] = T(u * c - v * t);
    y[second] = T(v * c + u * t);
  }
}

}  // namespace

template <typename T>
void rotary(const Rotary<T>& a, CUstream_st* stream) {
  rotary_rows<<<static_cast<unsigned>(a.s * a.b), kBlock, 0, stream>>>(a);
  check_launch("rotary");
}

COL_ROTARY_KERNELS(COL_INSTANTIATE_CUDA)

}  // namespace colonnade::kernels::cuda
