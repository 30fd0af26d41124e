// Backward passes that own their initial gradient.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

namespace colonnade::tensor {

/// Runs the backward pass from `output` with initial `gradient` into the leaves' grad() and frees the graph.
/// Unlike LibTorch's engine, which holds its inputs until the pass ends, this frees a moved-in `gradient` as
/// soon as the first node has used it.
void backward(const torch::autograd::Edge& output, at::Tensor gradient);

/// Moves the gradient out of a leaf.
at::Tensor take_grad(at::Tensor& leaf);

}  // namespace colonnade::tensor
