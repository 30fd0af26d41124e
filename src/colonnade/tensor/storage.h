// Freeing and restoring the memory of a storage while its tensors exist. Affects every tensor on the storage,
// including views and tensors saved by autograd.
#pragma once

#include <ATen/core/Tensor.h>

namespace colonnade::tensor {

/// Frees the memory under `storage`; its tensors keep their shapes and must not be read.
void release(const c10::Storage& storage);

/// Moves the memory of `source` into `storage`: equal size, same device. `source` is empty afterwards.
void restore(const c10::Storage& storage, const c10::Storage& source);

}  // namespace colonnade::tensor
