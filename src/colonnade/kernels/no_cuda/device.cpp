// device.h stubs for builds without CUDA.
#include "colonnade/kernels/device.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

std::string device_name(int) { unavailable("device_name"); }
std::string pci_bus_id(int) { unavailable("pci_bus_id"); }
void start_profiler() { unavailable("start_profiler"); }
void stop_profiler() { unavailable("stop_profiler"); }

}  // namespace colonnade::kernels::cuda
