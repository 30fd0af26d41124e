// Bias gradients: sums over all dimensions but the last.
#pragma once

#include <ATen/core/Tensor.h>

namespace colonnade::ops {

/// x [..., h] -> [h] in fp32 (float64 for float64), summed in fixed blocks of rows, so independent of the
/// number of threads. Not differentiable.
at::Tensor column_sum(const at::Tensor& x);

}  // namespace colonnade::ops
