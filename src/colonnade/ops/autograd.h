// Short words for the state that our autograd rules keep. Included by the sources of ops/ only.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <string>
#include <utility>

#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Any value kept between forward and backward.
template <typename T>
struct Kept final : torch::CustomClassHolder {
  explicit Kept(T given) : value(std::move(given)) {}
  T value;
};

/// What a rule keeps besides tensors: one copyable struct.
template <typename T>
void keep(AutogradContext* ctx, T value) {
  ctx->saved_data["kept"] = c10::IValue::make_capsule(c10::make_intrusive<Kept<T>>(std::move(value)));
}
template <typename T>
T kept(AutogradContext* ctx) {
  return static_cast<const Kept<T>&>(*ctx->saved_data["kept"].toCapsule()).value;
}

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
