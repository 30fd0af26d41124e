// Routing on CUDA: one thread per row.
#include "colonnade/kernels/routing.h"

#include "colonnade/kernels/cuda/common.cuh"
#include "colonnade/kernels/instantiate.h"
#include "colonnade/kernels/routing_row.h"

namespace colonnade::kernels::cuda {
namespace {

struct RoutingMath {
  template <typename T>
  static __host__ __device__ T exp(T x) {
    return ::exp(x);
  }
  template <typename T>
  static __host__ __device__ T log1p(T x) {
    return ::log1p(x);
  }
  template <typename T>
  static __host__ __device__ T sqrt(T x) {
    return ::sqrt(x);
  }
};

template <typename T>
__global__ void forward(Route<T> a) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (row < a.n) route_row<RoutingMath>(a, row);
}

template <typename T>
__global__ void backward(RouteGrad<T> a) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (row < a.n) route_grad_row<RoutingMath>(a, row);
}

unsigned blocks(std::int64_t rows) { return static_cast<unsigned>((rows + kBlock - 1) / kBlock); }

}  // namespace

template <typename T>
void route(const Route<T>& a, CUstream_st* stream) {
  forward<<<blocks(a.n), kBlock, 0, stream>>>(a);
  check_launch("route");
}

template <typename T>
void route_grad(const RouteGrad<T>& a, CUstream_st* stream) {
  backward<<<blocks(a.n), kBlock, 0, stream>>>(a);
  check_launch("route_grad");
}

COL_ROUTING_KERNELS(COL_INSTANTIATE_CUDA_WIDE)

}  // namespace colonnade::kernels::cuda
