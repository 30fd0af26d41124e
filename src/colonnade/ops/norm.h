// RMSNorm and LayerNorm over the last dimension, alone or behind a residual addition.
#pragma once

#include <ATen/core/Tensor.h>

#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps) over the last dimension (size h).
/// `weight` [h] is gamma, or gamma - 1 when `zero_centered`. x [..., h] is read contiguous; any float
/// type, the statistics in fp32 (float64 for float64). Saved for backward: x and rstd.
/// The gradient of `weight` goes to weight.accumulate(); its sums run over fixed blocks of rows, so
/// they do not depend on the number of threads.
at::Tensor rms_norm(const at::Tensor& x, tensor::Parameter& weight, double eps, bool zero_centered);

/// y = (x - mean) * rstd * gamma + bias, with the variance of the whole population. `bias` may be
/// null. Otherwise as rms_norm.
at::Tensor layer_norm(const at::Tensor& x, tensor::Parameter& weight, tensor::Parameter* bias, double eps,
                      bool zero_centered);

/// sum = x + residual feeds the next residual; normed = norm(sum).
struct Added {
  at::Tensor sum;
  at::Tensor normed;
};

/// Both in one pass over memory; backward adds the gradients of `sum` and of the norm in one pass and
/// returns the same tensor for x and residual.
Added add_rms_norm(const at::Tensor& x, const at::Tensor& residual, tensor::Parameter& weight, double eps,
                   bool zero_centered);
Added add_layer_norm(const at::Tensor& x, const at::Tensor& residual, tensor::Parameter& weight,
                     tensor::Parameter* bias, double eps, bool zero_centered);

}  // namespace colonnade::ops
