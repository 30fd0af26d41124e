// Short words for writing autograd rules. Included by the sources of ops/ only.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "colonnade/tensor/kept.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

using at::Tensor;
using tensor::keep;
using tensor::kept;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The local tensor of an optional parameter.
inline Tensor value_of(const tensor::Parameter* parameter) {
  return parameter != nullptr ? parameter->value : Tensor();
}

/// An argument that may be undefined, as torch::autograd::Function takes it.
using MaybeTensor = std::optional<Tensor>;
inline MaybeTensor maybe(const Tensor& x) { return x.defined() ? MaybeTensor(x) : std::nullopt; }

/// Backward formulas are not differentiated again.
inline Tensor contiguous(const Tensor& x) { return x.defined() ? x.contiguous() : x; }

}  // namespace colonnade::ops
