// Metrics with one value per layer, from the counts and losses of a step: load balance and losses of experts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace colonnade::record {

/// Key of metrics.jsonl and one number per layer, in layer order.
using LayerMetric = std::pair<std::string, std::vector<double>>;
/// Key and a list of counts per layer.
using LayerCounts = std::pair<std::string, std::vector<std::vector<std::int64_t>>>;
/// Name of a loss and its values by 0-based layer number, those of layers after the decoder last.
using LayerLosses = std::pair<std::string, std::map<std::int64_t, double>>;

/// Load of the MoE layers in a step:
///   "expert_balance"   tokens of the most loaded expert / mean over experts
///   "expert_least"     tokens of the least loaded expert / mean over experts
///   "dropped_tokens"   share of the (token, expert) pairs that were dropped; only with a capacity
/// `counts` are those of job::StepReport; empty for a model without experts. Tokens are counted before any is
/// dropped, as for Megatron's expert bias and losses.
std::vector<LayerMetric> layer_metrics(const std::map<std::string, std::vector<double>>& counts);

/// "tokens_per_expert": tokens routed to each expert of the MoE layers; empty without experts.
std::vector<LayerCounts> layer_counts(const std::map<std::string, std::vector<double>>& counts);

/// Losses of the routers in job::StepReport::losses (layers::kLayerLoss), by name; `num_layers`: layers of
/// the decoder. Empty without --moe-per-layer-logging.
std::vector<LayerLosses> layer_losses(const std::map<std::string, double>& losses, std::int64_t num_layers);

/// Whether `name` in job::StepReport::losses is the loss of a single layer.
bool is_layer_loss(std::string_view name);

/// Value of the least balanced layer: the smallest "expert_least", the largest of all others.
double worst_layer(const LayerMetric& metric);

/// Whether the step line shows the metric: not "expert_least".
bool is_on_step_line(const LayerMetric& metric);

/// TensorBoard tag: "moe/expert_balance".
std::string event_tag(const LayerMetric& metric);

/// TensorBoard tag of a layer's loss, as in Megatron: "moe/z_loss_layer_3".
std::string event_tag(const LayerLosses& losses, std::int64_t layer);

}  // namespace colonnade::record
