// Backward passes whose first gradient is held by nobody but them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

namespace colonnade::tensor {

/// Runs the backward pass from `output`, where `gradient` enters, into the leaves' grad(); the graph goes.
/// LibTorch's engine keeps what it is called with until a pass is through; of `gradient`, given by moving,
/// only the pass holds anything, and no longer than its first node needs it.
void backward(const torch::autograd::Edge& output, at::Tensor gradient);

/// The gradient of a leaf, of which the leaf lets go.
at::Tensor take_grad(at::Tensor& leaf);

}  // namespace colonnade::tensor
