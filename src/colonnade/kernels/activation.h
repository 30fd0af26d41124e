// Activation functions with bias, forward and backward.
#pragma once

#include <cstdint>

#include "colonnade/kernels/formulas.h"
#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// y[r, c] = f(z[r, c]), z = x + bias, or f(z[r, c]) * z[r, cols + c] for gated kinds, whose x has
/// 2 cols columns; f(z[r, 2c]) * z[r, 2c + 1] with both in bounds for paired ones. Computed in Acc<T>.
template <typename T>
struct Activation {
  ActivationKind kind;
  const T* x;
  const T* bias;  ///< may be null
  T* y;
  std::int64_t rows;
  std::int64_t cols;  ///< of y
  GluShape glu;       ///< read for paired kinds
};

/// grad_x = grad_y * slope(x); x is read again, nothing else was kept.
template <typename T>
struct ActivationGrad {
  ActivationKind kind;
  const T* x;
  const T* bias;  ///< may be null
  const T* grad_y;
  T* grad_x;
  std::int64_t rows;
  std::int64_t cols;  ///< of y
  GluShape glu;       ///< read for paired kinds
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

}  // namespace colonnade::kernels
