// device.h stubs for builds without CUDA.
#include "colonnade/kernels/device.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

std::string device_name(int) { unavailable("device_name"); }

}  // namespace colonnade::kernels::cuda
