// GPU names.
#pragma once

#include <string>

namespace colonnade::kernels::cuda {

/// CUDA's name of GPU `index`, e.g. "NVIDIA H200". Throws ConfigError in a build without CUDA.
std::string device_name(int index);

}  // namespace colonnade::kernels::cuda
