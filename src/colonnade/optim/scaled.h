// Tensors that an optimizer stores in fp16 or fp8 (e4m3) with a scale; other dtypes have none and pass
// through. Source: TransformerEngine's FusedAdam, whose scales are no powers of two.
#pragma once

#include <ATen/core/Tensor.h>

namespace colonnade::optim {

/// {scale, workspace} of a new tensor of zeros, fp32 [2]: see kernels::StoredValues::scale. Undefined for
/// dtypes without a scale.
at::Tensor make_scale(at::ScalarType type, const at::Device& device);

/// The values of `stored`: the tensor itself, or with a scale a new one in fp32.
at::Tensor unscaled(const at::Tensor& stored, const at::Tensor& scale);

/// Writes `values` (any floating-point dtype) into `stored`, with a scale divided by kernels::scale_for() of
/// the largest magnitude, which becomes the scale. unscaled() of a tensor of the same dtype is stored without
/// rounding. On CUDA the host waits for a scale.
void store(const at::Tensor& values, const at::Tensor& stored, const at::Tensor& scale);

}  // namespace colonnade::optim
