// One group over two backends: tensors on the host travel by one, tensors on a device by the other.
#pragma once

#include <memory>

#include "colonnade/comm/backend.h"

namespace colonnade::comm {

/// Gloo carries what lies in host memory (texts, checkpoints), NCCL what lies on a GPU. Both have the same
/// members in the same order. Barriers and Group's own texts go over `host`, since they hold up the host.
std::shared_ptr<Backend> by_device(std::shared_ptr<Backend> host, std::shared_ptr<Backend> device);

}  // namespace colonnade::comm
