// What an autograd rule keeps from its forward pass besides tensors: one copyable struct.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace colonnade::tensor {

/// Any value, as the autograd context holds it.
template <typename T>
struct Kept final : torch::CustomClassHolder {
  explicit Kept(T given) : value(std::move(given)) {}
  T value;
};

/// Keeps `value` for backward; one per context. What it points to must outlive the graph.
template <typename T>
void keep(torch::autograd::AutogradContext* ctx, T value) {
  ctx->saved_data["kept"] = c10::IValue::make_capsule(c10::make_intrusive<Kept<T>>(std::move(value)));
}
/// A copy of what keep<T>() kept.
template <typename T>
T kept(torch::autograd::AutogradContext* ctx) {
  return static_cast<const Kept<T>&>(*ctx->saved_data["kept"].toCapsule()).value;
}

}  // namespace colonnade::tensor
