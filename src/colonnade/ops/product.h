// The two matrix products of a linear that make new activations. The third, the gradient of its weight, is
// Parameter::accumulate_product.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace colonnade::ops {

/// x [..., in] as the rows [n, in] of a product.
at::Tensor as_rows(const at::Tensor& x);

/// y [n, out] = x [n, in] w^T + bias, with w [out, in] and bias [out]. One type, one device; no autograd.
///
/// On the CPU in fp32 LibTorch carries two libraries. MKL, its default, takes its best kernels on Intel's
/// processors only; elsewhere oneDNN computes the product where the processor has AVX-512. Which of them is
/// a matter of the processor alone, so a run keeps its bits on one machine.
at::Tensor product(const at::Tensor& x, const at::Tensor& w,
                   const std::optional<at::Tensor>& bias = std::nullopt);

/// dx [n, in] = dy [n, out] w: the gradient of x in `product`.
at::Tensor product_input_grad(const at::Tensor& dy, const at::Tensor& w);

}  // namespace colonnade::ops
