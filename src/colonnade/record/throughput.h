// Speed of a step in the units people compare: tokens per second, TFLOP/s, share of the peak, time left.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "colonnade/config/model.h"

namespace colonnade::record {

/// tokens / seconds of the whole job.
double tokens_per_second(std::int64_t tokens, double step_ms);

/// Model FLOPs of the global batch (forward and backward, recomputation not counted) per device and
/// second, in 1e12. Source of the FLOP formula: Megatron's num_floating_point_operations.
double tflops_per_device(double flops_per_batch, double step_ms, int devices);

/// TFLOP/s of matrix products without sparsity that the maker's data sheet gives for a GPU of this name
/// (kernels/device.h): tensor cores for 16-bit types, none for fp32, which LibTorch multiplies in full. Empty
/// for a GPU that is not in the table.
std::optional<double> peak_tflops(std::string_view device_name, config::ParamsDtype dtype);

/// Share of the device's peak in the dtype of the matrix products; empty when the peak is not known (CPU).
std::optional<double> model_flops_utilisation(double tflops_per_device, std::optional<double> peak_tflops);

/// Seconds until the last step. The mean runs over the steps of this process, later ones counting
/// more (weight 0.1 each), and the first is left out: it warms caches up.
class TimeLeft {
 public:
  explicit TimeLeft(std::int64_t last_iteration) : last_(last_iteration) {}
  void add(std::int64_t iteration, double step_ms);
  /// Empty until two steps were seen.
  [[nodiscard]] std::optional<double> seconds() const;

 private:
  std::int64_t last_;
  std::int64_t iteration_ = 0;
  std::int64_t steps_ = 0;
  double mean_ms_ = 0;
};

}  // namespace colonnade::record
