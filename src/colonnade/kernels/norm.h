// RMSNorm and LayerNorm of rows, with the residual addition before them.
#pragma once

#include <cstdint>

#include "colonnade/kernels/reduce.h"
#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// With z = x + residual (residual may be null; then sum may be null too):
///   y[r, c] = (z[r, c] - mean[r]) * rstd[r] * (weight[c] + (zero_centered ? 1 : 0)) + bias[c]
///   mean[r] = mean_c z (0 when `mean` is null: RMSNorm), rstd[r] = 1 / sqrt(mean_c (z - mean)^2 + eps)
/// The statistics are of z as rounded to T, because that is what `sum` hands on.
template <typename T>
struct Norm {
  const T* x;
  const T* residual;  ///< may be null
  const T* weight;
  const T* bias;  ///< may be null
  T* sum;         ///< z, written when residual is given
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
template <typename T>
struct NormGrad {
  const T* x;  ///< z of the forward pass
  const T* weight;
  const Acc<T>* mean;  ///< null: RMSNorm
  const Acc<T>* rstd;
  const T* grad_y;
  const T* grad_sum;  ///< gradient of `sum` from elsewhere; may be null
  T* grad_x;
  Acc<T>* grad_weight;  ///< [cols]
  Acc<T>* grad_bias;    ///< [cols]; may be null
  Acc<T>* partial;      ///< work space, 2 * column_blocks(rows) * cols
  std::int64_t rows;
  std::int64_t cols;
  bool zero_centered;
};

namespace cpu {
template <typename T>
void norm(const Norm<T>& a);
template <typename T>
void norm_grad(const NormGrad<T>& a);
}  // namespace cpu

namespace cuda {
template <typename T>
void norm(const Norm<T>& a, CUstream_st* stream);
template <typename T>
void norm_grad(const NormGrad<T>& a, CUstream_st* stream);
}  // namespace cuda

}  // namespace colonnade::kernels
