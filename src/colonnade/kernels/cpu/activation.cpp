// Activations on the CPU: one read of x, one write of y.
#include "colonnade/kernels/activation.h"

#include "colonnade/kernels/cpu/parallel.h"
#include "colonnade/kernels/cpu/vector.h"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cpu {
namespace {

/// x + bias at one column of a row.
template <bool kBias, typename T>
[[gnu::always_inline]] inline Acc<T> input(const T* row, const T* bias, std::int64_t column) {
  Acc<T> z = load(row[column]);
  if constexpr (kBias) z += load(bias[column]);
  return z;
}

template <ActivationKind kKind, bool kBias, typename T>
COL_CLONES void forward_rows(const Activation<T>& a, std::int64_t begin, std::int64_t end) {
  using A = Acc<T>;
  constexpr std::int64_t kWidth = is_gated(kKind) ? 2 : 1;
  const std::int64_t cols = a.cols;
  [[maybe_unused]] const A bound = A(a.glu.bound), offset = A(a.glu.offset);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = a.x + row * cols * kWidth;
    T* y = a.y + row * cols;
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) {
      A z = input<kBias>(x, a.bias, gate_column<kKind>(c));
      if constexpr (is_interleaved(kKind)) z = clamp_max(z, bound).value;
      A out = value_derivative<kKind, Math>(z).value;
      if constexpr (is_gated(kKind)) {
        A u = input<kBias>(x, a.bias, up_column<kKind>(c, cols));
        if constexpr (is_interleaved(kKind)) u = clamp_abs(u, bound).value + offset;
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
  [[maybe_unused]] const A bound = A(a.glu.bound), offset = A(a.glu.offset);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = a.x + row * cols * kWidth;
    const T* grad_y = a.grad_y + row * cols;
    T* grad_x = a.grad_x + row * cols * kWidth;
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) {
      const A g = load(grad_y[c]);
      const A z = input<kBias>(x, a.bias, gate_column<kKind>(c));
      if constexpr (is_interleaved(kKind)) {
        const ValueDerivative<A> gate = clamp_max(z, bound);
        const ValueDerivative<A> up = clamp_abs(input<kBias>(x, a.bias, up_column<kKind>(c, cols)), bound);
        const ValueDerivative<A> f = value_derivative<kKind, Math>(gate.value);
        grad_x[gate_column<kKind>(c)] = T(g * (up.value + offset) * f.derivative * gate.derivative);
        grad_x[up_column<kKind>(c, cols)] = T(g * f.value * up.derivative);
      } else {
        const ValueDerivative<A> f = value_derivative<kKind, Math>(z);
        if constexpr (is_gated(kKind)) {
          const A u = input<kBias>(x, a.bias, up_column<kKind>(c, cols));
          grad_x[c] = T(g * u * f.derivative);
          grad_x[cols + c] = T(g * f.value);
        } else {
          grad_x[c] = T(g * f.derivative);
        }
      }
    }
  }
}

/// Calls f with the kind and the presence of a bias as template arguments.
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
    case ActivationKind::kQuickGeglu:
      return pick.template operator()<ActivationKind::kQuickGeglu>();
    case ActivationKind::kRelu:
      return pick.template operator()<ActivationKind::kRelu>();
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

COL_ACTIVATION_KERNELS(COL_INSTANTIATE_CPU)

}  // namespace colonnade::kernels::cpu
