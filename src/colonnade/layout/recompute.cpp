// Counts recomputed layers.
#include "colonnade/layout/recompute.h"

#include <algorithm>

#include "colonnade/layout/params/gpt.h"

namespace colonnade::layout {

std::vector<std::int64_t> stretches_made_again(const config::Recompute& recompute, std::int64_t layers) {
  std::vector<std::int64_t> lengths;
  if (!recompute.full() || layers < 1) return lengths;
  const std::int64_t number = recompute.num_layers.value_or(1);
  if (recompute.method == "block") return std::vector<std::int64_t>(std::min(number, layers), 1);
  for (; layers > 0; layers -= number) lengths.push_back(std::min(number, layers));
  return lengths;
}

LayerCounts layers_of(const config::Model& model, const StageBlocks& stage) {
  const std::vector<bool> kinds = layers_with_experts(model);
  LayerCounts counts;
  for (std::int64_t i = 0; i < stage.num_layers; ++i)
    ++(kinds[static_cast<std::size_t>(stage.first_layer + i)] ? counts.experts : counts.dense);
  return counts;
}

LayerCounts layers_made_again(const config::Run& run, const StageBlocks& stage) {
  StageBlocks again = stage;
  again.num_layers = 0;
  for (const std::int64_t length : stretches_made_again(run.recompute, stage.num_layers))
    again.num_layers += length;
  return layers_of(run.model, again);
}

LayerCounts layers_with_predictions(const config::Model& model, const StageBlocks& stage) {
  LayerCounts counts = layers_of(model, stage);
  if (stage.final_norm)
    (layers_with_experts(model).back() ? counts.experts : counts.dense) += model.mtp_num_layers;
  return counts;
}

LayerCounts layers_made_again_with_predictions(const config::Run& run, const StageBlocks& stage) {
  LayerCounts counts = layers_made_again(run, stage);
  if (stage.final_norm && makes_predictions_again(run.recompute))
    (layers_with_experts(run.model).back() ? counts.experts : counts.dense) += run.model.mtp_num_layers;
  return counts;
}

bool makes_predictions_again(const config::Recompute& recompute) {
  return recompute.full() && recompute.method == "uniform";
}

bool keeps_batches(const config::Run& run) {
  const auto selects = [&](const char* module) { return run.recompute.selects(module); };
  return run.recompute.full() || selects("core_attn") || selects("mlp") || selects("moe") ||
         selects("shared_experts");
}

}  // namespace colonnade::layout
