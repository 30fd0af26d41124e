// Activations with bias, forward and backward.
#pragma once

#include <cstdint>

#include "colonnade/kernels/formulas.h"
#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// y[r, c] = f(z[r, c]) with z = x + bias. For gated kinds, x has 2 cols columns and y[r, c] = f(z[r, c]) *
/// z[r, cols + c], or f(z[r, 2c]) * z[r, 2c + 1] with both clamped for interleaved kinds. Computed in Acc<T>.
template <typename T>
struct Activation {
  ActivationKind kind;
  const T* x;
  const T* bias;  ///< may be null
  T* y;
  std::int64_t rows;
  std::int64_t cols;  ///< columns of y
  GluParams glu;      ///< used by interleaved kinds
};

/// grad_x = grad_y * f'(x); recomputed from x, the only saved tensor.
template <typename T>
struct ActivationGrad {
  ActivationKind kind;
  const T* x;
  const T* bias;  ///< may be null
  const T* grad_y;
  T* grad_x;
  std::int64_t rows;
  std::int64_t cols;  ///< columns of y
  GluParams glu;      ///< used by interleaved kinds
};

namespace cpu {
template <typename T>
void activation(const Activation<T>& a);
template <typename T>
void activation_grad(const ActivationGrad<T>& a);
}  // namespace cpu

namespace cuda {
template <typename T>
void activation(const Activation<T>& a, CUstream_st* stream);
template <typename T>
void activation_grad(const ActivationGrad<T>& a, CUstream_st* stream);
}  // namespace cuda

/// Kernels of this header (instantiate.h).
#define COL_ACTIVATION_KERNELS(M) M(activation, Activation) M(activation_grad, ActivationGrad)

}  // namespace colonnade::kernels
