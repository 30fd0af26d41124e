// See throughput.h.
#include "colonnade/record/throughput.h"

#include <algorithm>

namespace colonnade::record {

namespace {

struct Gpu {
  std::string_view name;  ///< part of the name in CUDA; the first matching row counts
  double half, full;      ///< TFLOP/s
};

/// NVIDIA's data sheets: A100 (2021), H100 (2023), H200 (2024), GB200 and HGX B200 (2025).
constexpr Gpu kGpus[] = {{"A100", 312, 19.5},   {"H100 PCIe", 756, 51}, {"H100 80GB HBM3", 989, 67},
                         {"H200 NVL", 835, 60}, {"H200", 989, 67},      {"GB200", 2500, 80},
                         {"B200", 2250, 75}};

}  // namespace

std::optional<double> peak_tflops(std::string_view device_name, config::Dtype dtype) {
  if (device_name.find(" MIG ") != std::string_view::npos) return std::nullopt;  // a slice of a GPU
  for (const Gpu& gpu : kGpus)
    if (device_name.find(gpu.name) != std::string_view::npos)
      return dtype == config::Dtype::kFloat32 ? gpu.full : gpu.half;
  return std::nullopt;
}

double tokens_per_second(std::int64_t tokens, double step_ms) {
  return step_ms > 0 ? static_cast<double>(tokens) * 1e3 / step_ms : 0.0;
}

double tflops_per_device(double flops_per_batch, double step_ms, int devices) {
  return step_ms > 0 && devices > 0 ? flops_per_batch / (step_ms * 1e-3 * devices) / 1e12 : 0.0;
}

std::optional<double> model_flops_utilization(double tflops_per_device, std::optional<double> peak_tflops) {
  if (!peak_tflops || *peak_tflops <= 0) return std::nullopt;
  return tflops_per_device / *peak_tflops;
}

void TimeLeft::add(std::int64_t iteration, double step_ms) {
  iteration_ = iteration;
  ++steps_;
  if (steps_ == 2) mean_ms_ = step_ms;
  if (steps_ > 2) mean_ms_ += 0.1 * (step_ms - mean_ms_);
}

std::optional<double> TimeLeft::seconds() const {
  if (steps_ < 2) return std::nullopt;
  return static_cast<double>(std::max<std::int64_t>(last_ - iteration_, 0)) * mean_ms_ / 1e3;
}

}  // namespace colonnade::record
