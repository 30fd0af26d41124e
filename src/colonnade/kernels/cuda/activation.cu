// Activation functions on CUDA: a loop over elements, strided by the grid.
#include "colonnade/kernels/activation.h"

#include "colonnade/kernels/cuda/common.cuh"

namespace colonnade::kernels::cuda {
namespace {

template <ActivationKind kKind, typename T>
__global__ void forward(Activation<T> a) {
  using A = Acc<T>;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < a.rows * a.cols; i += step) {
    const std::int64_t c = i % a.cols;
    const std::int64_t at = is_gated(kKind) ? 2 * i - c : i;  // row * 2 cols + c
    const A z = load(a.x[at]) + (a.bias != nullptr ? load(a.bias[c]) : A(0));
    A y = value_slope<kKind, Math>(z).value;
    if (is_gated(kKind)) y *= load(a.x[at + a.cols]) + (a.bias != nullptr ? load(a.bias[c + a.cols]) : A(0));
    a.y[i] = T(y);
  }
}

template <ActivationKind kKind, typename T>
__global__ void backward(ActivationGrad<T> a) {
  using A = Acc<T>;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < a.rows * a.cols; i += step) {
    const std::int64_t c = i % a.cols;
    const std::int64_t at = is_gated(kKind) ? 2 * i - c : i;
    const A z = load(a.x[at]) + (a.bias != nullptr ? load(a.bias[c]) : A(0));
    const ValueSlope<A> f = value_slope<kKind, Math>(z);
    const A g = load(a.grad_y[i]);
    if (is_gated(kKind)) {
      const A up = load(a.x[at + a.cols]) + (a.bias != nullptr ? load(a.bias[c + a.cols]) : A(0));
      a.grad_x[at] = T(g * up * f.slope);
      a.grad_x[at + a.cols] = T(g * f.value);
    } else {
      a.grad_x[at] = T(g * f.slope);
    }
  }
}

template <typename F>
void with_kind(ActivationKind kind, const F& f) {
  switch (kind) {
    case ActivationKind::kGeluErf:
      return f.template operator()<ActivationKind::kGeluErf>();
    case ActivationKind::kGeluTanh:
      return f.template operator()<ActivationKind::kGeluTanh>();
    case ActivationKind::kSquaredRelu:
      return f.template operator()<ActivationKind::kSquaredRelu>();
    case ActivationKind::kSwiglu:
      return f.template operator()<ActivationKind::kSwiglu>();
    case ActivationKind::kGeglu:
      return f.template operator()<ActivationKind::kGeglu>();
    case ActivationKind::kGegluTanh:
      return f.template operator()<ActivationKind::kGegluTanh>();
  }
}

}  // namespace

template <typename T>
void activation(const Activation<T>& a, CUstream_st* stream) {
  with_kind(a.kind, [&]<ActivationKind kKind>() {
    forward<kKind><<<grid_for(a.rows * a.cols), kBlock, 0, stream>>>(a);
  });
  check_launch("activation");
}

template <typename T>
void activation_grad(const ActivationGrad<T>& a, CUstream_st* stream) {
  with_kind(a.kind, [&]<ActivationKind kKind>() {
    backward<kKind><<<grid_for(a.rows * a.cols), kBlock, 0, stream>>>(a);
  });
  check_launch("activation_grad");
}

template void activation(const Activation<float>&, CUstream_st*);
template void activation(const Activation<double>&, CUstream_st*);
template void activation(const Activation<BFloat16>&, CUstream_st*);
template void activation(const Activation<Half>&, CUstream_st*);
template void activation_grad(const ActivationGrad<float>&, CUstream_st*);
template void activation_grad(const ActivationGrad<double>&, CUstream_st*);
template void activation_grad(const ActivationGrad<BFloat16>&, CUstream_st*);
template void activation_grad(const ActivationGrad<Half>&, CUstream_st*);

}  // namespace colonnade::kernels::cuda
