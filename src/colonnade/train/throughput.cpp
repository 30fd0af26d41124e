// See throughput.h.
#include "colonnade/train/throughput.h"

#include <algorithm>

namespace colonnade::train {

double tokens_per_second(std::int64_t tokens, double step_ms) {
  return step_ms > 0 ? static_cast<double>(tokens) * 1e3 / step_ms : 0.0;
}

double tflops_per_device(double flops_per_batch, double step_ms, int devices) {
  return step_ms > 0 && devices > 0 ? flops_per_batch / (step_ms * 1e-3 * devices) / 1e12 : 0.0;
}

std::optional<double> model_flops_utilisation(double tflops_per_device, std::optional<double> peak_tflops) {
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

}  // namespace colonnade::train
