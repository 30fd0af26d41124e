// Auxiliary losses computed inside a model.
#pragma once

#include <ATen/core/Tensor.h>

namespace colonnade::ops {

/// Returns x unchanged. In backward, the scalar `loss` gets the gradient `scale`, as if scale * loss were
/// added to the training loss.
at::Tensor attach_loss(const at::Tensor& x, const at::Tensor& loss, double scale);

}  // namespace colonnade::ops
