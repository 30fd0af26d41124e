// Activation functions on the CPU: one read of x, one write of y.
#include "colonnade/kernels/activation.h"

#include "colonnade/kernels/cpu/parallel.h"
#include "colonnade/kernels/cpu/vector.h"

namespace colonnade::kernels::cpu {
namespace {

template <ActivationKind kKind, bool kBias, typename T>
COL_CLONES void forward_rows(const Activation<T>& a, std::int64_t begin, std::int64_t end) {
  using A = Acc<T>;
  constexpr std::int64_t kWidth = is_gated(kKind) ? 2 : 1;
  const std::int64_t cols = a.cols;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* gate = a.x + row * cols * kWidth;
    const T* up = gate + cols;
    T* y = a.y + row * cols;
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) {
      A z = load(gate[c]);
      if constexpr (kBias) z += load(a.bias[c]);
      A out = value_slope<kKind, Math>(z).value;
      if constexpr (is_gated(kKind)) {
        A u = load(up[c]);
        if constexpr (kBias) u += load(a.bias[cols + c]);
        out *= u;
      }
      y[c] = T(out);
    }
  }
}

template <ActivationKind kKind, bool kBias, typename T>
COL_CLONES void backward_rows(const ActivationGrad<T>& a, std::int64_t begin, std::int64_t end) {
  using A = Acc<T>;
  constexpr std::int64_t kWidth = is_gated(kKind) ? 2 : 1;
  const std::int64_t cols = a.cols;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* gate = a.x + row * cols * kWidth;
    const T* up = gate + cols;
    const T* grad_y = a.grad_y + row * cols;
    T* grad_gate = a.grad_x + row * cols * kWidth;
    T* grad_up = grad_gate + cols;
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) {
      A z = load(gate[c]);
      if constexpr (kBias) z += load(a.bias[c]);
      const ValueSlope<A> f = value_slope<kKind, Math>(z);
      const A g = load(grad_y[c]);
      if constexpr (is_gated(kKind)) {
        A u = load(up[c]);
        if constexpr (kBias) u += load(a.bias[cols + c]);
        grad_gate[c] = T(g * u * f.slope);
        grad_up[c] = T(g * f.value);
      } else {
        grad_gate[c] = T(g * f.slope);
      }
    }
  }
}

/// Calls f with the kind and the presence of a bias as constants.
template <typename F>
void with_kind(ActivationKind kind, bool bias, const F& f) {
  const auto pick = [&]<ActivationKind kKind>() {
    if (bias)
      f.template operator()<kKind, true>();
    else
      f.template operator()<kKind, false>();
  };
  switch (kind) {
    case ActivationKind::kGeluErf:
      return pick.template operator()<ActivationKind::kGeluErf>();
    case ActivationKind::kGeluTanh:
      return pick.template operator()<ActivationKind::kGeluTanh>();
    case ActivationKind::kSquaredRelu:
      return pick.template operator()<ActivationKind::kSquaredRelu>();
    case ActivationKind::kSwiglu:
      return pick.template operator()<ActivationKind::kSwiglu>();
    case ActivationKind::kGeglu:
      return pick.template operator()<ActivationKind::kGeglu>();
    case ActivationKind::kGegluTanh:
      return pick.template operator()<ActivationKind::kGegluTanh>();
  }
}

}  // namespace

template <typename T>
void activation(const Activation<T>& a) {
  with_kind(a.kind, a.bias != nullptr, [&]<ActivationKind kKind, bool kBias>() {
    parallel_for(a.rows, row_grain(a.cols),
                 [&](std::int64_t begin, std::int64_t end) { forward_rows<kKind, kBias>(a, begin, end); });
  });
}

template <typename T>
void activation_grad(const ActivationGrad<T>& a) {
  with_kind(a.kind, a.bias != nullptr, [&]<ActivationKind kKind, bool kBias>() {
    parallel_for(a.rows, row_grain(a.cols),
                 [&](std::int64_t begin, std::int64_t end) { backward_rows<kKind, kBias>(a, begin, end); });
  });
}

template void activation(const Activation<float>&);
template void activation(const Activation<double>&);
template void activation(const Activation<BFloat16>&);
template void activation(const Activation<Half>&);
template void activation_grad(const ActivationGrad<float>&);
template void activation_grad(const ActivationGrad<double>&);
template void activation_grad(const ActivationGrad<BFloat16>&);
template void activation_grad(const ActivationGrad<Half>&);

}  // namespace colonnade::kernels::cpu
