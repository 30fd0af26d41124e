// Memory as bytes through LibTorch's tensor allocators, not resident size.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace colonnade::tensor {

/// Puts a counter in front of LibTorch's CPU allocator for the rest of the process, and serves large tensors
/// from a BlockPool. Call once, before tensors are made; tensors made before are not counted.
void count_cpu_memory();
/// The same for meta tensors: what they would take if they had memory.
void count_meta_memory();

/// Bytes alive now and the most since the last reset.
struct MemoryUse {
  std::uint64_t now = 0;
  std::uint64_t peak = 0;
};
/// Of a device: from the counters above on the CPU and on meta (0 when nothing counts), from LibTorch's
/// own allocator on CUDA. One number for all threads of the process.
MemoryUse memory_use(at::Device device);
void reset_peak(at::Device device);
/// The peak, and a reset: phases that follow each other each learn their own. Costs two atomic operations
/// on the CPU and waits for nothing on CUDA.
std::uint64_t take_peak(at::Device device);

}  // namespace colonnade::tensor
