// Metrics with one value per layer, from the counts of a step: load balance of experts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace colonnade::record {

/// Key of metrics.jsonl and one number per layer, in layer order.
using LayerMetric = std::pair<std::string, std::vector<double>>;
/// Key and a list of counts per layer.
using LayerCounts = std::pair<std::string, std::vector<std::vector<std::int64_t>>>;

/// Load of the MoE layers in a step:
///   "expert_balance"   tokens of the most loaded expert / mean over experts
///   "expert_least"     tokens of the least loaded expert / mean over experts
///   "dropped_tokens"   share of the (token, expert) pairs that were dropped; only with a capacity
/// `counts` are those of job::StepReport; empty for a model without experts. Tokens are counted before any is
/// dropped, as for Megatron's expert bias and losses.
std::vector<LayerMetric> layer_metrics(const std::map<std::string, std::vector<double>>& counts);

/// "tokens_per_expert": tokens routed to each expert of the MoE layers; empty without experts.
std::vector<LayerCounts> layer_counts(const std::map<std::string, std::vector<double>>& counts);

/// Value of the least balanced layer: the smallest "expert_least", the largest of all others.
double worst_layer(const LayerMetric& metric);

/// Whether the step line shows the metric: not "expert_least".
bool is_on_step_line(const LayerMetric& metric);

/// TensorBoard tag: "moe/expert_balance".
std::string event_tag(const LayerMetric& metric);

}  // namespace colonnade::record
