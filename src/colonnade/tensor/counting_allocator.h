// Peak memory as bytes through LibTorch's CPU tensor allocator, not resident size.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace colonnade::tensor {

/// Puts a counter in front of LibTorch's CPU allocator for the rest of the process. Call once, before
/// tensors are made; tensors made before are not counted.
void count_cpu_memory();

/// Bytes alive now and the most since the last reset, of the tensors counted.
struct MemoryUse {
  std::uint64_t now = 0;
  std::uint64_t peak = 0;
};
MemoryUse cpu_memory();
void reset_cpu_peak();

/// The peak of a device: the counter above, or LibTorch's own on CUDA.
std::uint64_t peak_memory(at::Device device);

}  // namespace colonnade::tensor
