// Limits of values (--clip-qkv of OLMoE).
#pragma once

#include <ATen/core/Tensor.h>

namespace colonnade::ops {

/// y = min(max(x, -limit), limit); the gradient passes where |x| <= limit. Saved for backward: x. at::clamp
/// has the same values, but its backward pass does not run on meta tensors.
at::Tensor clip(const at::Tensor& x, double limit);

}  // namespace colonnade::ops
