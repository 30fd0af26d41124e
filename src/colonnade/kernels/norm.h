// RMSNorm and LayerNorm of rows, fused with a preceding residual addition.
#pragma once

#include <cstdint>

#include "colonnade/kernels/reduce.h"
#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// With z = x + added (added may be null; then sum may be null too):
///   y[r, c] = (z[r, c] - mean[r]) * rstd[r] * (weight[c] + (zero_centered ? 1 : 0)) + bias[c]
///   mean[r] = mean_c z (0 when `mean` is null: RMSNorm), rstd[r] = 1 / sqrt(mean_c (z - mean)^2 + eps)
/// Statistics are computed from z rounded to S, the value of `sum`. S: dtype of the residual stream, T or
/// fp32.
template <typename T, typename S = T>
struct Norm {
  const S* x;      ///< the residual stream
  const T* added;  ///< may be null
  const T* weight;
  const T* bias;  ///< may be null
  S* sum;         ///< z, written if `added` is given
  T* y;
  Acc<T>* mean;  ///< null: RMSNorm
  Acc<T>* rstd;
  std::int64_t rows;
  std::int64_t cols;
  double eps;
  bool zero_centered;
};

/// grad_x = rstd (g - [mean_c g] - xhat mean_c(g xhat)) + grad_sum with g = grad_y * gamma and
/// xhat = (x - mean) rstd. Sums over rows run in column_blocks(rows) fixed blocks.
template <typename T, typename S = T>
struct NormGrad {
  const S* x;  ///< z of the forward pass
  const T* weight;
  const Acc<T>* mean;  ///< null: RMSNorm
  const Acc<T>* rstd;
  const T* grad_y;
  const S* grad_sum;  ///< incoming gradient of `sum`; may be null
  S* grad_x;
  Acc<T>* grad_weight;  ///< [cols]
  Acc<T>* grad_bias;    ///< [cols]; may be null
  Acc<T>* partial;      ///< workspace, 2 * column_blocks(rows) * cols
  std::int64_t rows;
  std::int64_t cols;
  bool zero_centered;
};

namespace cpu {
template <typename T, typename S = T>
void norm(const Norm<T, S>& a);
template <typename T, typename S = T>
void norm_grad(const NormGrad<T, S>& a);
}  // namespace cpu

namespace cuda {
template <typename T, typename S = T>
void norm(const Norm<T, S>& a, CUstream_st* stream);
template <typename T, typename S = T>
void norm_grad(const NormGrad<T, S>& a, CUstream_st* stream);
}  // namespace cuda

/// Kernels of this header (instantiate.h).
#define COL_NORM_KERNELS(M) M(norm, Norm) M(norm_grad, NormGrad)

}  // namespace colonnade::kernels
