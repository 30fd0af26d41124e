// Shared by the CUDA kernels: block reductions, math functions for kernels/formulas.h, launch helpers.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "colonnade/base/error.h"
#include "colonnade/kernels/types.h"

namespace colonnade::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kBlock = 256;  // threads per block in all kernels; required by block_sum

struct Math {
  static __host__ __device__ float exp(float x) { return ::expf(x); }
  static __host__ __device__ double exp(double x) { return ::exp(x); }
  static __host__ __device__ float cdf(float z, float) { return 0.5F * ::erfcf(-z * 0.70710678F); }
  static __host__ __device__ double cdf(double z, double) {
    return 0.5 * ::erfc(-z * 0.70710678118654752440);
  }
};

/// Sum over the kBlock threads of a block in a fixed order, returned to every thread. Ends with a barrier, so
/// it may be called repeatedly.
template <typename A>
__device__ A block_sum(A value) {
  __shared__ A warps[kBlock / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, offset);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  A sum = 0;
  for (int warp = 0; warp < kBlock / kWarp; ++warp) sum += warps[warp];
  __syncthreads();
  return sum;
}

template <typename A>
__device__ A block_max(A value) {
  __shared__ A warps[kBlock / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = max(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  A max_value = warps[0];
  for (int warp = 1; warp < kBlock / kWarp; ++warp) max_value = max(max_value, warps[warp]);
  __syncthreads();
  return max_value;
}

/// Number of blocks for a grid-stride loop over n elements.
inline unsigned grid_for(std::int64_t n) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((n + kBlock - 1) / kBlock, 1, 1 << 16));
}

/// Throws Error if the preceding launch failed.
inline void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  COL_CHECK(status == cudaSuccess, "CUDA kernel {} must launch; got {}", kernel, cudaGetErrorString(status));
}

}  // namespace colonnade::kernels::cuda
