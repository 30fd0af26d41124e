// Non-tensor state that an autograd function saves for backward: one copyable struct.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace colonnade::tensor {

/// Holder of any value in an autograd context.
template <typename T>
struct SavedValue final : torch::CustomClassHolder {
  explicit SavedValue(T given) : value(std::move(given)) {}
  T value;
};

/// Saves `value` for backward; one per context. Objects that it points to must outlive the graph.
template <typename T>
void save_value(torch::autograd::AutogradContext* ctx, T value) {
  ctx->saved_data["kept"] = c10::IValue::make_capsule(c10::make_intrusive<SavedValue<T>>(std::move(value)));
}
/// A copy of the saved value.
template <typename T>
T saved_value(torch::autograd::AutogradContext* ctx) {
  return static_cast<const SavedValue<T>&>(*ctx->saved_data["kept"].toCapsule()).value;
}

}  // namespace colonnade::tensor
