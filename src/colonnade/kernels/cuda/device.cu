// See device.h.
#include "colonnade/kernels/device.h"

#include <cuda_runtime.h>

#include "colonnade/base/error.h"

namespace colonnade::kernels::cuda {

std::string device_name(int index) {
  cudaDeviceProp properties{};
  const cudaError_t code = cudaGetDeviceProperties(&properties, index);
  COL_CHECK(code == cudaSuccess, "name of GPU {} must be readable; got {}", index, cudaGetErrorString(code));
  return properties.name;
}

}  // namespace colonnade::kernels::cuda
