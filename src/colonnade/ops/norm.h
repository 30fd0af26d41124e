// RMSNorm and LayerNorm over the last dimension, optionally fused with a preceding residual addition.
#pragma once

#include <ATen/core/Tensor.h>

#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps) over the last dimension (size h).
/// `weight` [h] is gamma, or gamma - 1 if `zero_centered`. x [..., h] has the weight's dtype or fp32, and y
/// the weight's; statistics are fp32 (float64 for float64). Saved for backward: x and rstd. The gradient of
/// `weight` goes to weight.accumulate(), summed in fixed blocks of rows, so independent of the number of
/// threads.
at::Tensor rms_norm(const at::Tensor& x, tensor::Parameter& weight, double eps, bool zero_centered);

/// The same with gamma = 1 and no weight.
at::Tensor rms_norm(const at::Tensor& x, double eps);

/// y = (x - mean) * rstd * gamma + bias, with the biased (population) variance. `bias` may be null. Otherwise
/// as rms_norm.
at::Tensor layer_norm(const at::Tensor& x, tensor::Parameter& weight, tensor::Parameter* bias, double eps,
                      bool zero_centered);

/// sum = x + residual, the next residual; normed = norm(sum).
struct AddNormOutput {
  at::Tensor sum;
  at::Tensor normed;
};

/// Addition and norm in one pass over memory. x has the weight's dtype, `residual` and `sum` the weight's or
/// fp32. Backward adds the gradients of `sum` and of the norm in one pass and returns the same tensor for x
/// and residual, for x in its dtype.
AddNormOutput add_rms_norm(const at::Tensor& x, const at::Tensor& residual, tensor::Parameter& weight,
                           double eps, bool zero_centered);
AddNormOutput add_layer_norm(const at::Tensor& x, const at::Tensor& residual, tensor::Parameter& weight,
                             tensor::Parameter* bias, double eps, bool zero_centered);

}  // namespace colonnade::ops
