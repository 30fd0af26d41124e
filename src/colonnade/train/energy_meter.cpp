// See energy_meter.h.
#include "colonnade/train/energy_meter.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/kernels/device.h"

namespace colonnade::train {
namespace {

constexpr const char* kNvml = "libnvidia-ml.so.1";

[[noreturn]] void throw_unreadable(const std::string& reason) {
  throw ConfigError(
      fmt::format("--log-energy requires a GPU whose energy NVML reads; got {}; remove the flag", reason));
}

template <typename Function>
Function* symbol(void* library, const char* name) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) throw_unreadable(fmt::format("{} without {}", kNvml, name));
  return reinterpret_cast<Function*>(found);
}

void require_success(int code, const char* call) {
  if (code != 0) throw_unreadable(fmt::format("error {} of {}", code, call));
}

}  // namespace

EnergyMeter::EnergyMeter(bool is_on, at::Device device) {
  if (!is_on) return;
  const std::string bus = kernels::cuda::pci_bus_id(device.index());
  // Never closed: the driver's library stays loaded in every CUDA process.
  library_ = ::dlopen(kNvml, RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw_unreadable(fmt::format("no {}", kNvml));
  require_success(symbol<int()>(library_, "nvmlInit_v2")(), "nvmlInit_v2");
  require_success(
      symbol<int(const char*, void**)>(library_, "nvmlDeviceGetHandleByPciBusId_v2")(bus.c_str(), &gpu_),
      "nvmlDeviceGetHandleByPciBusId_v2");
  read_ = symbol<Read>(library_, "nvmlDeviceGetTotalEnergyConsumption");
  last_ = read();
}

EnergyMeter::~EnergyMeter() {
  if (read_ == nullptr) return;
  if (void* const shutdown = ::dlsym(library_, "nvmlShutdown")) reinterpret_cast<int (*)()>(shutdown)();
}

unsigned long long EnergyMeter::read() const {
  unsigned long long millijoules = 0;
  require_success(read_(gpu_, &millijoules), "nvmlDeviceGetTotalEnergyConsumption");
  return millijoules;
}

double EnergyMeter::lap() {
  if (read_ == nullptr) return 0;
  const unsigned long long before = std::exchange(last_, read());
  return static_cast<double>(last_ - before) * 1e-3;
}

}  // namespace colonnade::train
