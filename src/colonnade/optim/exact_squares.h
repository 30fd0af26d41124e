// A sum of squares that has the same bits however the elements are cut and whatever the order.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "colonnade/comm/group.h"

namespace colonnade::optim {

/// The sum of x^2 over all elements of all ranks' tensors (any floating type, one device, any shapes). Each
/// square, taken relative to the largest one of all ranks, is cut after 64 binary places and added as
/// integers, which no order rounds: for 2^33 elements the sum is exact to 2^-31 of the largest square, for
/// 2^40 ones nothing overflows. Not finite where an element is not. 0 on meta tensors. Communication: a
/// maximum of one number and a sum of three over `ranks`; every rank must call it. On CUDA the host waits.
double exact_squares(const std::vector<at::Tensor>& tensors, const comm::Group& ranks,
                     const at::Device& device);

}  // namespace colonnade::optim
