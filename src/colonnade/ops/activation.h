// The non-linear function of the feed-forward block, with the bias of the linear layer before it.
#pragma once

#include <ATen/core/Tensor.h>

#include "colonnade/config/model.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// With z = x + bias (bias [f] may be null), over the last dimension:
///   kGeluErf       z * Phi(z)                                       [..., f] -> [..., f]
///   kGeluTanh      z/2 * (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))
///   kSquaredRelu   max(z, 0)^2
///   kSwiglu        silu(gate) * up, z = [gate | up]                 [..., 2f] -> [..., f]
///   kGeglu         gelu_erf(gate) * up;  kGegluTanh  gelu_tanh(gate) * up
/// Saved for backward: x. The gradient of the bias goes to bias->accumulate().
at::Tensor activate(const at::Tensor& x, tensor::Parameter* bias, config::Activation kind);
inline at::Tensor activate(const at::Tensor& x, config::Activation kind) {
  return activate(x, nullptr, kind);
}

}  // namespace colonnade::ops
