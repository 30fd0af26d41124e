// Norm of a bucket's gradients on one rank, for --check-for-large-grads. Private to data_parallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <vector>

#include "colonnade/tensor/parameter.h"

namespace colonnade::data_parallel {

/// L2 norm of the main gradients of `parameters`, a tensor of one element. Padding between them in a bucket
/// is not counted: its memory may be uninitialized.
inline at::Tensor local_norm(const std::vector<tensor::Parameter*>& parameters) {
  std::vector<at::Tensor> norms;
  norms.reserve(parameters.size());
  for (const tensor::Parameter* p : parameters) norms.push_back(p->main_grad.norm());
  return at::stack(norms).norm();
}

}  // namespace colonnade::data_parallel
