// Activation function of the MLP, fused with the bias of the preceding linear layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>

#include "colonnade/config/model.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// With z = x + bias (bias [f] may be null), over the last dimension:
///   kGeluErf       z * Phi(z)                                       [..., f] -> [..., f]
///   kGeluTanh      z/2 * (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))
///   kSquaredRelu   max(z, 0)^2;  kRelu  max(z, 0)
///   kSwiglu        silu(gate) * up, z = [gate | up]                 [..., 2f] -> [..., f]
///   kGeglu         gelu_erf(gate) * up;  kGegluTanh  gelu_tanh(gate) * up
///   kQuickGeglu    g sigmoid(1.702 g) * (u + offset), z = [gate_0, up_0, gate_1, up_1, ...],
///                  g = min(gate, bound), u = clamp(up, -bound, bound)
/// Saved for backward: x. The gradient of the bias goes to bias->accumulate().
struct ActivationKind {
  ActivationKind(config::Activation of) : kind(of) {}  // NOLINT: implicit conversion
  explicit ActivationKind(const config::Model& model);
  config::Activation kind;
  double bound = std::numeric_limits<double>::infinity();  ///< clamp bound of kQuickGeglu
  double offset = 0;                                       ///< linear offset of kQuickGeglu
};
at::Tensor activate(const at::Tensor& x, tensor::Parameter* bias, const ActivationKind& kind);
inline at::Tensor activate(const at::Tensor& x, const ActivationKind& kind) {
  return activate(x, nullptr, kind);
}

}  // namespace colonnade::ops
