// Products whose few numbers decide much: of routers and gates.
#pragma once

#include "colonnade/tensor/parameter.h"

namespace colonnade::layers {

/// x W^T + b in fp32 (float64 for float64), whatever the types of x [n, h], W [rows, h] and b [rows] (may be
/// null) are. No communication; the gradients of W and b go straight into main_grad.
at::Tensor wide_product(const at::Tensor& x, tensor::Parameter& weight, tensor::Parameter* bias = nullptr);

}  // namespace colonnade::layers
