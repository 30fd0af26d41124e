// See unsharded_buffer.h.
#include "colonnade/data_parallel/unsharded_buffer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "colonnade/tensor/storage.h"

namespace colonnade::data_parallel {

UnshardedBuffer::UnshardedBuffer(std::int64_t numel, const at::TensorOptions& options)
    : tensor_(at::zeros({numel}, options)) {}

void UnshardedBuffer::set_storage(const at::Tensor& source) {
  tensor::restore(tensor_.storage(), source.storage());
  has_storage_ = true;
}

void UnshardedBuffer::release() {
  if (has_storage_) tensor::release(tensor_.storage());
  has_storage_ = false;
}

at::Tensor UnshardedBuffer::empty() const { return at::empty(tensor_.sizes(), tensor_.options()); }

}  // namespace colonnade::data_parallel
