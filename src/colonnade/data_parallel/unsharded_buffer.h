// Flat buffer of an unsharded bucket with storage only while in use.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colonnade::data_parallel {

/// Flat tensor whose storage is freed and reattached while its views (parameter values, gradients, tensors
/// saved by autograd) stay valid. Initially has storage, so that views can be created.
class UnshardedBuffer {
 public:
  UnshardedBuffer() : has_storage_(false) {}
  UnshardedBuffer(std::int64_t numel, const at::TensorOptions& options);
  [[nodiscard]] const at::Tensor& tensor() const { return tensor_; }
  [[nodiscard]] bool has_storage() const { return has_storage_; }
  /// Attaches the storage of `source`, which has as many elements.
  void set_storage(const at::Tensor& source);
  void release();
  /// A new uninitialized tensor of the same size and dtype.
  [[nodiscard]] at::Tensor empty() const;

 private:
  at::Tensor tensor_;
  bool has_storage_ = true;
};

}  // namespace colonnade::data_parallel
