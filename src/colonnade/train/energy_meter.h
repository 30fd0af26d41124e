// --log-energy: energy of this rank's GPU.
#pragma once

#include <c10/core/Device.h>

namespace colonnade::train {

/// Reads the energy counter of a GPU by NVIDIA's management library (NVML), which is loaded at run time from
/// the driver. The counter is updated every 20 to 100 ms and covers the whole GPU. Source: nvml.h
/// (nvmlDeviceGetTotalEnergyConsumption), Megatron's energy_monitor.py.
class EnergyMeter {
 public:
  /// Without `is_on` every lap is 0. Throws ConfigError when the library or the counter is missing.
  EnergyMeter(bool is_on, at::Device device);
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  /// Joules since the last call, or since construction.
  double lap();

 private:
  /// Millijoules since the driver was loaded.
  [[nodiscard]] unsigned long long read() const;

  using Read = int(void* gpu, unsigned long long* millijoules);
  void* library_ = nullptr;
  void* gpu_ = nullptr;
  Read* read_ = nullptr;
  unsigned long long last_ = 0;
};

}  // namespace colonnade::train
