// Device for test tensors: the same test runs on the CPU and, as ctest's <area>_gpu, on one GPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdlib>
#include <string_view>

namespace colonnade::test {

/// CUDA device 0 if the environment variable COLONNADE_TEST_DEVICE is "cuda", else the CPU.
inline at::Device device() {
  const char* requested = std::getenv("COLONNADE_TEST_DEVICE");
  const bool cuda = requested != nullptr && std::string_view(requested) == "cuda";
  return cuda ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
}

/// Tensor options for `type` on device().
inline at::TensorOptions options(at::ScalarType type) { return at::dtype(type).device(device()); }

/// Number of thread ranks: `on_cpu` on the CPU, one on a GPU (thread ranks need host memory).
inline int thread_ranks(int on_cpu) { return device().is_cpu() ? on_cpu : 1; }

/// Value for --device.
inline const char* device_flag() { return device().is_cuda() ? "cuda" : "cpu"; }

}  // namespace colonnade::test
