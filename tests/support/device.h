// The device on which a test puts its tensors: the same test checks the CPU and, started once more as
// ctest's <area>_gpu, one GPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdlib>
#include <string_view>

namespace colonnade::test {

/// CUDA device 0 where the environment variable COLONNADE_TEST_DEVICE is "cuda", else the CPU.
inline at::Device device() {
  const char* asked = std::getenv("COLONNADE_TEST_DEVICE");
  const bool cuda = asked != nullptr && std::string_view(asked) == "cuda";
  return cuda ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
}

/// For at::zeros, at::arange, ... : a tensor of `type` on device().
inline at::TensorOptions options(at::ScalarType type) { return at::dtype(type).device(device()); }

/// Threads stand in for ranks in host memory only: where a test takes `on_cpu` of them, a GPU gets one.
inline int thread_ranks(int on_cpu) { return device().is_cpu() ? on_cpu : 1; }

/// What the flag --device takes.
inline const char* device_flag() { return device().is_cuda() ? "cuda" : "cpu"; }

}  // namespace colonnade::test
