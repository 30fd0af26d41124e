// See whole.h.
#include "colonnade/data_parallel/whole.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "colonnade/tensor/storage.h"

namespace colonnade::data_parallel {

Whole::Whole(std::int64_t numel, const at::TensorOptions& options) : tensor_(at::zeros({numel}, options)) {}

void Whole::give(const at::Tensor& fresh) {
  tensor::restore(tensor_.storage(), fresh.storage());
  here_ = true;
}

void Whole::let_go() {
  if (here_) tensor::release(tensor_.storage());
  here_ = false;
}

at::Tensor Whole::empty() const { return at::empty(tensor_.sizes(), tensor_.options()); }

}  // namespace colonnade::data_parallel
