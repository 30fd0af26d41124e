// Metrics of a step as sums and counts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

namespace colonnade::tensor {

/// A sum and its count, float64 [2] on the device of `sum`, so that no step synchronizes with the device. The
/// reported value is sum / count over all micro-batches, stages and data-parallel ranks; tensor-parallel
/// ranks hold equal values.
using MetricSum = at::Tensor;
MetricSum metric_sum(const at::Tensor& sum, const at::Tensor& count);

/// Metric sums by name: "lm_loss", "load_balancing_loss", ...
using MetricSums = std::map<std::string, MetricSum>;
/// Adds `more` to the sum of `name`.
void add(MetricSums& all, const std::string& name, const MetricSum& more);

/// Metrics reported by a rank's blocks and loss in one step.
struct Report {
  MetricSums metric_sums;
  /// Rank-local counts by name: float64 of any shape on the device, summed over micro-batches and all ranks.
  std::map<std::string, at::Tensor> counts;
  /// Largest attention score of each head of the model [heads] over this rank's part of the step, by 0-based
  /// global layer; -inf for heads that this rank does not compute. Empty unless the run tracks them.
  std::map<std::int64_t, at::Tensor> max_attention_logits;
};
/// Raises the maxima of `layer` to `logits`.
void raise_max_attention_logits(Report& report, std::int64_t layer, const at::Tensor& logits);

/// `x` on the host; zeros for a meta tensor (dry run).
at::Tensor to_host(const at::Tensor& x);

}  // namespace colonnade::tensor
