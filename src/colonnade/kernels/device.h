// GPU names and addresses, and marks for profilers.
#pragma once

#include <string>

namespace colonnade::kernels::cuda {

/// CUDA's name of GPU `index`, e.g. "NVIDIA H200". Throws ConfigError in a build without CUDA.
std::string device_name(int index);

/// PCI address of GPU `index`, "00000000:3B:00.0". Throws Error, and ConfigError in a build without CUDA.
std::string pci_bus_id(int index);

/// Begins and ends the range that Nsight Systems captures with --capture-range=cudaProfilerApi. Throw Error
/// when CUDA reports a failure.
void start_profiler();
void stop_profiler();

}  // namespace colonnade::kernels::cuda
