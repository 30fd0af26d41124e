// Memory that a tensor lets go of while nobody reads it, and gets back before somebody does. Every tensor on
// the storage, views and what autograd saved included, loses and finds its elements with it.
#pragma once

#include <ATen/core/Tensor.h>

namespace colonnade::tensor {

/// Frees the memory under `storage`; its tensors keep their shapes and must not be read.
void release(const c10::Storage& storage);

/// Moves the memory of `made` under `storage`: as many bytes, on the same device. `made` has none after it.
void restore(const c10::Storage& storage, const c10::Storage& made);

}  // namespace colonnade::tensor
