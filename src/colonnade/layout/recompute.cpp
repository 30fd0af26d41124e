// See recompute.h.
#include "colonnade/layout/recompute.h"

#include <algorithm>

#include "colonnade/layout/params/gpt.h"

namespace colonnade::layout {

std::vector<std::int64_t> recompute_spans(const config::Recompute& recompute, std::int64_t layers) {
  std::vector<std::int64_t> lengths;
  if (!recompute.is_full() || layers < 1) return lengths;
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

LayerCounts recomputed_layers(const config::Run& run, const StageBlocks& stage) {
  StageBlocks recomputed = stage;
  recomputed.num_layers = 0;
  for (const std::int64_t length : recompute_spans(run.recompute, stage.num_layers))
    recomputed.num_layers += length;
  return layers_of(run.model, recomputed);
}

LayerCounts layers_with_mtp(const config::Model& model, const StageBlocks& stage) {
  LayerCounts counts = layers_of(model, stage);
  if (stage.final_norm)
    (layers_with_experts(model).back() ? counts.experts : counts.dense) += model.mtp_num_layers;
  return counts;
}

LayerCounts recomputed_layers_with_mtp(const config::Run& run, const StageBlocks& stage) {
  LayerCounts counts = recomputed_layers(run, stage);
  if (stage.final_norm && recomputes_mtp_layers(run.recompute))
    (layers_with_experts(run.model).back() ? counts.experts : counts.dense) += run.model.mtp_num_layers;
  return counts;
}

bool recomputes_mtp_layers(const config::Recompute& recompute) {
  return recompute.is_full() && recompute.method == "uniform";
}

bool graph_keeps_batch(const config::Run& run) {
  const auto selects = [&](const char* module) { return run.recompute.recomputes(module); };
  return run.recompute.is_full() || selects("core_attn") || selects("mlp") || selects("moe") ||
         selects("shared_experts");
}

}  // namespace colonnade::layout
