// Sum of squares that is bitwise independent of sharding and summation order.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "colonnade/comm/group.h"

namespace colonnade::optim {

/// Sum of x^2 over all elements of all ranks' tensors (any floating dtype, one device, any shapes). Squares
/// relative to the largest of all ranks are truncated to 64 fractional bits and summed as integers, so the
/// order causes no rounding: for 2^33 elements the sum is exact to 2^-31 of the largest square, and 2^40
/// elements do not overflow. Not finite if an element is not. 0 on meta tensors. Communication: a max
/// all-reduce of one number and a sum all-reduce of three over `ranks`. Collective. On CUDA the host waits.
double exact_squares(const std::vector<at::Tensor>& tensors, const comm::Group& ranks,
                     const at::Device& device);

}  // namespace colonnade::optim
