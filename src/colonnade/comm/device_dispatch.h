// One group over two backends, chosen per call by the device of the tensor.
#pragma once

#include <memory>

#include "colonnade/comm/backend.h"

namespace colonnade::comm {

/// Gloo handles CPU tensors (texts, checkpoints), NCCL handles CUDA tensors. Both have the same members in
/// the same order. Barriers and Group's own texts use `host`, because they block the host anyway.
std::shared_ptr<Backend> dispatch_by_device(std::shared_ptr<Backend> host, std::shared_ptr<Backend> device);

}  // namespace colonnade::comm
