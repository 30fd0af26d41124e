// See layer_metrics.h.
#include "colonnade/record/layer_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <tuple>

#include "colonnade/layers/moe/router.h"

namespace colonnade::record {
namespace {

constexpr const char* kLeast = "expert_least";

/// Rounds to four decimal places.
double rounded(double x) { return std::round(x * 1e4) / 1e4; }

double sum(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

/// Names of the routers counted under `prefix`: by layer number, those of the decoder first.
std::vector<std::string> routers(const std::map<std::string, std::vector<double>>& counts,
                                 std::string_view prefix) {
  std::vector<std::string> names;
  for (const auto& [name, numbers] : counts)
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  std::ranges::sort(names, {}, [](const std::string& name) {
    return std::tuple(!name.starts_with("decoder."), name.size(), name);
  });
  return names;
}

/// Number of the layer of a router. The transformer layers of blocks after the decoder follow its layers.
std::int64_t layer_number(std::string_view router, std::int64_t num_layers) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t at = router.find(kLayers);
  if (at == std::string_view::npos) return 0;
  const std::int64_t number = std::atoll(std::string(router.substr(at + kLayers.size())).c_str());
  return router.find(".transformer_layer.") == std::string_view::npos ? number : num_layers + number;
}

}  // namespace

std::vector<LayerMetric> layer_metrics(const std::map<std::string, std::vector<double>>& counts) {
  std::vector<double> balance, least, dropped;
  for (const std::string& router : routers(counts, layers::kExpertTokens)) {
    const std::vector<double>& tokens = counts.at(layers::kExpertTokens + router);
    const double all = sum(tokens), mean = all / static_cast<double>(tokens.size());
    balance.push_back(all > 0 ? rounded(*std::ranges::max_element(tokens) / mean) : 1);
    least.push_back(all > 0 ? rounded(*std::ranges::min_element(tokens) / mean) : 1);
    const auto kept = counts.find(layers::kKeptTokens + router);
    if (kept != counts.end()) dropped.push_back(all > 0 ? rounded(1 - sum(kept->second) / all) : 0);
  }
  std::vector<LayerMetric> load;
  if (!balance.empty()) load = {{"expert_balance", balance}, {kLeast, least}};
  if (!dropped.empty()) load.emplace_back("dropped_tokens", dropped);
  return load;
}

std::vector<LayerCounts> layer_counts(const std::map<std::string, std::vector<double>>& counts) {
  std::vector<std::vector<std::int64_t>> of_layers;
  for (const std::string& router : routers(counts, layers::kExpertTokens)) {
    const std::vector<double>& tokens = counts.at(layers::kExpertTokens + router);
    of_layers.emplace_back(tokens.begin(), tokens.end());
  }
  if (of_layers.empty()) return {};
  return {{"tokens_per_expert", std::move(of_layers)}};
}

bool is_layer_loss(std::string_view name) { return name.starts_with(layers::kLayerLoss); }

std::vector<LayerLosses> layer_losses(const std::map<std::string, double>& losses, std::int64_t num_layers) {
  std::map<std::string, std::map<std::int64_t, double>> by_name;
  for (const auto& [key, value] : losses) {
    if (!is_layer_loss(key)) continue;
    const std::string name = key.substr(std::string_view(layers::kLayerLoss).size());
    const std::size_t slash = name.find('/');
    by_name[name.substr(0, slash)][layer_number(name.substr(slash + 1), num_layers)] = value;
  }
  return {by_name.begin(), by_name.end()};
}

double worst_layer(const LayerMetric& metric) {
  const auto [low, high] = std::ranges::minmax_element(metric.second);
  return metric.first == kLeast ? *low : *high;
}

bool is_on_step_line(const LayerMetric& metric) { return metric.first != kLeast; }

std::string event_tag(const LayerMetric& metric) { return "moe/" + metric.first; }

std::string event_tag(const LayerLosses& losses, std::int64_t layer) {
  return fmt::format("moe/{}_layer_{}", losses.first, layer);
}

}  // namespace colonnade::record
