// Activations on CUDA: a grid-stride loop over elements.
#include "colonnade/kernels/activation.h"

#include "colonnade/kernels/cuda/common.cuh"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cuda {
namespace {

/// x + bias at one column of the row that begins at `row`.
template <typename Args>
__device__ auto input(const Args& a, std::int64_t row, std::int64_t column) {
  const auto z = load(a.x[row + column]);
  return a.bias != nullptr ? z + load(a.bias[column]) : z;
}

template <ActivationKind kKind, typename T>
__global__ void forward(Activation<T> a) {
  using A = Acc<T>;
  const A bound = A(a.glu.bound), offset = A(a.glu.offset);
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < a.rows * a.cols; i += step) {
    const std::int64_t c = i % a.cols;
    const std::int64_t row = is_gated(kKind) ? 2 * (i - c) : i - c;
    A z = input(a, row, gate_column<kKind>(c));
    if constexpr (is_interleaved(kKind)) z = clamp_max(z, bound).value;
    A y = value_derivative<kKind, Math>(z).value;
    if constexpr (is_gated(kKind)) {
      A u = input(a, row, up_column<kKind>(c, a.cols));
      if constexpr (is_interleaved(kKind)) u = clamp_abs(u, bound).value + offset;
      y *= u;
    }
    a.y[i] = T(y);
  }
}

template <ActivationKind kKind, typename T>
__global__ void backward(ActivationGrad<T> a) {
  using A = Acc<T>;
  const A bound = A(a.glu.bound), offset = A(a.glu.offset);
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < a.rows * a.cols; i += step) {
    const std::int64_t c = i % a.cols;
    const std::int64_t row = is_gated(kKind) ? 2 * (i - c) : i - c;
    const A g = load(a.grad_y[i]);
    const A z = input(a, row, gate_column<kKind>(c));
    if constexpr (is_interleaved(kKind)) {
      const ValueDerivative<A> gate = clamp_max(z, bound);
      const ValueDerivative<A> up = clamp_abs(A(input(a, row, up_column<kKind>(c, a.cols))), bound);
      const ValueDerivative<A> f = value_derivative<kKind, Math>(gate.value);
      a.grad_x[row + gate_column<kKind>(c)] = T(g * (up.value + offset) * f.derivative * gate.derivative);
      a.grad_x[row + up_column<kKind>(c, a.cols)] = T(g * f.value * up.derivative);
    } else {
      const ValueDerivative<A> f = value_derivative<kKind, Math>(z);
      if constexpr (is_gated(kKind)) {
        const A up = input(a, row, up_column<kKind>(c, a.cols));
        a.grad_x[row + c] = T(g * up * f.derivative);
        a.grad_x[row + a.cols + c] = T(g * f.value);
      } else {
        a.grad_x[row + c] = T(g * f.derivative);
      }
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
    case ActivationKind::kQuickGeglu:
      return f.template operator()<ActivationKind::kQuickGeglu>();
    case ActivationKind::kRelu:
      return f.template operator()<ActivationKind::kRelu>();
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

COL_ACTIVATION_KERNELS(COL_INSTANTIATE_CUDA)

}  // namespace colonnade::kernels::cuda
