// Forward and input-gradient matmuls of a linear layer. The weight gradient is
// Parameter::accumulate_weight_grad.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace colonnade::ops {

/// View of x [..., in] as [n, in].
at::Tensor as_rows(const at::Tensor& x);

/// y [n, out] = x [n, in] w^T + bias, with w [out, in] and bias [out]. One type, one device; no autograd.
///
/// For fp32 on the CPU, LibTorch includes MKL (the default) and oneDNN. MKL selects its best kernels only on
/// Intel processors; on other processors with AVX-512, this uses oneDNN. The choice depends only on the
/// processor, so results on one machine are reproducible.
at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& w,
                          const std::optional<at::Tensor>& bias = std::nullopt);

/// dx [n, in] = dy [n, out] w: the input gradient of `linear_forward`.
at::Tensor linear_input_grad(const at::Tensor& dy, const at::Tensor& w);

}  // namespace colonnade::ops
