// Memory of a whole bucket that is there only while somebody uses it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colonnade::data_parallel {

/// A flat tensor whose views (the values or gradients of parameters, and what autograd saved of them) stay
/// valid while its memory comes and goes. Begins with memory, so that views can be made.
class Whole {
 public:
  Whole() : here_(false) {}
  Whole(std::int64_t numel, const at::TensorOptions& options);
  [[nodiscard]] const at::Tensor& tensor() const { return tensor_; }
  [[nodiscard]] bool here() const { return here_; }
  /// Puts the memory of `fresh` (as many elements) under it.
  void give(const at::Tensor& fresh);
  void let_go();
  /// New memory of the same size and type.
  [[nodiscard]] at::Tensor empty() const;

 private:
  at::Tensor tensor_;
  bool here_ = true;
};

}  // namespace colonnade::data_parallel
