// Speed of a step in common units: tokens per second, TFLOP/s, MFU, time left.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "colonnade/config/dtypes.h"

namespace colonnade::record {

/// Tokens per second of the full job.
double tokens_per_second(std::int64_t tokens, double step_ms);

/// Model FLOPs of the global batch (forward and backward, without recomputation) per device and second, in
/// 1e12. Source of the FLOP formula: Megatron's num_floating_point_operations.
double tflops_per_device(double flops_per_batch, double step_ms, int devices);

/// Dense matmul TFLOP/s of a GPU of this name (kernels/device.h) in NVIDIA's data sheets: tensor cores for
/// 16-bit dtypes, CUDA cores for fp32, which LibTorch multiplies in full precision. Empty for a GPU that is
/// not in the table. `dtype`: that of activations.
std::optional<double> peak_tflops(std::string_view device_name, config::Dtype dtype);

/// MFU: share of the device's peak in the matmul dtype; empty when the peak is unknown (CPU).
std::optional<double> model_flops_utilization(double tflops_per_device, std::optional<double> peak_tflops);

/// Seconds until the last step, from a moving average over the steps of this process (weight 0.1). The first
/// step, which warms up caches, is left out.
class TimeLeft {
 public:
  explicit TimeLeft(std::int64_t last_iteration) : last_(last_iteration) {}
  void add(std::int64_t iteration, double step_ms);
  /// Empty until the second step.
  [[nodiscard]] std::optional<double> seconds() const;

 private:
  std::int64_t last_;
  std::int64_t iteration_ = 0;
  std::int64_t steps_ = 0;
  double mean_ms_ = 0;
};

}  // namespace colonnade::record
