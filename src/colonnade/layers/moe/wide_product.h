// Products whose few numbers decide much: of routers and gates.
#pragma once

#include "colonnade/tensor/parameter.h"

namespace colonnade::layers {

/// x W^T in fp32 (float64 for float64), whatever the types of x [n, h] and W [rows, h] are. No communication;
/// the gradient of W goes straight into main_grad.
at::Tensor wide_product(const at::Tensor& x, tensor::Parameter& weight);

}  // namespace colonnade::layers
