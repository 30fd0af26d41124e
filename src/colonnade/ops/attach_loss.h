// A loss that comes up in the middle of a model.
#pragma once

#include <ATen/core/Tensor.h>

namespace colonnade::ops {

/// x, unchanged; in the backward pass `loss`, a scalar, gets the gradient `scale`, as if scale * loss were
/// added to what is differentiated.
at::Tensor attach_loss(const at::Tensor& x, const at::Tensor& loss, double scale);

}  // namespace colonnade::ops
