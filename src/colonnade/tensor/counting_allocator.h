// Tensor memory in bytes, counted in LibTorch's allocators (not resident size).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace colonnade::tensor {

/// Installs a counting CPU allocator for the rest of the process, with a HostMemoryPool for large tensors.
/// Call once before creating tensors; earlier tensors are not counted.
void count_cpu_memory();
/// Same for meta tensors: counts the memory that they would need on a device.
void count_meta_memory();

/// Live bytes, and their peak since the last reset.
struct MemoryUse {
  std::uint64_t now = 0;
  std::uint64_t peak = 0;
};
/// Memory use of a device: from the counters above for CPU and meta (0 if not installed), from LibTorch's
/// caching allocator for CUDA. Process-wide.
MemoryUse memory_use(at::Device device);
void reset_peak(at::Device device);
/// Returns and resets the peak, so that successive phases each get their own. Two atomic operations on the
/// CPU; no synchronization on CUDA.
std::uint64_t take_peak(at::Device device);

}  // namespace colonnade::tensor
