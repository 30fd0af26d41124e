// Helpers for autograd functions. Included only by sources of ops/.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "colonnade/tensor/parameter.h"
#include "colonnade/tensor/saved_value.h"

namespace colonnade::ops {

using at::Tensor;
using tensor::save_value;
using tensor::saved_value;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Local value of an optional parameter.
inline Tensor value_of(const tensor::Parameter* parameter) {
  return parameter != nullptr ? parameter->value : Tensor();
}

/// An optional tensor argument of torch::autograd::Function.
using MaybeTensor = std::optional<Tensor>;
inline MaybeTensor maybe(const Tensor& x) { return x.defined() ? MaybeTensor(x) : std::nullopt; }

/// Contiguous copy of a tensor that may be undefined.
inline Tensor contiguous(const Tensor& x) { return x.defined() ? x.contiguous() : x; }

}  // namespace colonnade::ops
