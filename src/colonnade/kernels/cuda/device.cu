// See device.h.
#include "colonnade/kernels/device.h"

#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include "colonnade/base/error.h"

namespace colonnade::kernels::cuda {

std::string device_name(int index) {
  cudaDeviceProp properties{};
  const cudaError_t code = cudaGetDeviceProperties(&properties, index);
  COL_CHECK(code == cudaSuccess, "name of GPU {} must be readable; got {}", index, cudaGetErrorString(code));
  return properties.name;
}

std::string pci_bus_id(int index) {
  char id[32] = {};
  const cudaError_t code = cudaDeviceGetPCIBusId(id, sizeof id, index);
  COL_CHECK(code == cudaSuccess, "PCI address of GPU {} must be readable; got {}", index,
            cudaGetErrorString(code));
  return id;
}

void start_profiler() {
  const cudaError_t code = cudaProfilerStart();
  COL_CHECK(code == cudaSuccess, "the CUDA profiler must start; got {}", cudaGetErrorString(code));
}

void stop_profiler() {
  const cudaError_t code = cudaProfilerStop();
  COL_CHECK(code == cudaSuccess, "the CUDA profiler must stop; got {}", cudaGetErrorString(code));
}

}  // namespace colonnade::kernels::cuda
