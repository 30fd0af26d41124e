// Sums the forward FLOPs of recomputed layers and modules.
#include "colonnade/cost/recomputed_flops.h"

#include <algorithm>

#include "colonnade/layout/params/gpt.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {

namespace {

/// Of one sample and layer; `whole`: the layer is made again.
TrainingFlops flops_again(const config::Run& run, std::int64_t layer, bool whole) {
  const LayerFlops flops = layer_flops(run.model, layer, sample_length(run));
  const bool experts = layout::layers_with_experts(
      run.model)[static_cast<std::size_t>(std::min(layer, run.model.num_layers - 1))];
  const auto picked = [&](const char* module) { return run.recompute.selects(module); };
  double linears = 0;
  if (whole || picked(experts ? "moe" : "mlp"))
    linears = flops.mlp;
  else if (picked("shared_experts"))
    linears = flops.shared;
  if (whole || picked("mla_up_proj")) linears += whole ? flops.projections : flops.heads;
  return {.linears = linears, .attention = whole || picked("core_attn") ? flops.attention : 0};
}

}  // namespace

TrainingFlops recomputed_flops(const config::Run& run, std::int64_t sequences) {
  const config::Model& m = run.model;
  const auto samples = static_cast<double>(sequences);
  TrainingFlops sum;
  const auto add = [&](std::int64_t layer, bool whole) {
    const TrainingFlops one = flops_again(run, layer, whole);
    sum.linears += samples * one.linears;
    sum.attention += samples * one.attention;
  };
  for (const layout::StageBlocks& stage : layout::split_stages(m, run.parallel)) {
    const layout::LayerCounts again = layout::layers_made_again(run, stage);
    for (std::int64_t i = 0; i < stage.num_layers; ++i)
      add(stage.first_layer + i, i < again.dense + again.experts);
  }
  const bool predictions = layout::makes_predictions_again(run.recompute);
  const auto hidden = static_cast<double>(m.hidden_size);
  for (std::int64_t i = 0; i < m.mtp_num_layers; ++i) {
    add(m.num_layers + i, predictions);
    if (predictions)
      sum.linears += samples * static_cast<double>(run.training.seq_length) * 4 * hidden * hidden;
  }
  return sum;
}

}  // namespace colonnade::cost
