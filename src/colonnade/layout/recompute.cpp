// See recompute.h.
#include "colonnade/layout/recompute.h"

#include <algorithm>

#include "colonnade/layout/layer_kind.h"

namespace colonnade::layout {

std::vector<std::int64_t> recompute_spans(const config::Recompute& recompute, std::int64_t layers) {
  std::vector<std::int64_t> lengths;
  if (!recompute.is_full() || layers < 1) return lengths;
  const std::int64_t number = recompute.num_layers.value_or(1);
  if (recompute.method == "block") return std::vector<std::int64_t>(std::min(number, layers), 1);
  for (; layers > 0; layers -= number) lengths.push_back(std::min(number, layers));
  return lengths;
}

namespace {

LayerCounts count(const std::vector<LayerKind>& kinds, const IndexRange& layers) {
  LayerCounts counts;
  for (const std::int64_t i : layers)
    ++(kinds[static_cast<std::size_t>(i)].is_moe() ? counts.experts : counts.dense);
  return counts;
}

void add_mtp_layers(LayerCounts& counts, const config::Model& model) {
  (layer_kinds(model).back().is_moe() ? counts.experts : counts.dense) += model.mtp_num_layers;
}

}  // namespace

LayerCounts layers_of(const config::Model& model, const StageBlocks& stage) {
  return count(layer_kinds(model), stage.layers());
}

LayerCounts recomputed_layers(const config::Run& run, const StageBlocks& stage) {
  IndexRange layers = stage.layers();
  const std::int64_t all = layers.size();
  layers.last = layers.first;
  for (const std::int64_t length : recompute_spans(run.recompute, all)) layers.last += length;
  return count(layer_kinds(run.model), layers);
}

LayerCounts layers_with_mtp(const config::Model& model, const StageBlocks& stage) {
  LayerCounts counts = layers_of(model, stage);
  if (stage.has(BlockKind::kFinalNorm)) add_mtp_layers(counts, model);
  return counts;
}

LayerCounts recomputed_layers_with_mtp(const config::Run& run, const StageBlocks& stage) {
  LayerCounts counts = recomputed_layers(run, stage);
  if (stage.has(BlockKind::kFinalNorm) && recomputes_mtp_layers(run.recompute))
    add_mtp_layers(counts, run.model);
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
