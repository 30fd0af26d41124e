// Sums the forward FLOPs of recomputed layers and modules.
#include "colonnade/cost/recomputed_flops.h"

#include <algorithm>

#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {

namespace {

/// Recomputed FLOPs of one sample and layer; `full`: the full layer is recomputed.
TrainingFlops recomputed_layer_flops(const config::Run& run, std::int64_t layer, bool full) {
  const LayerFlops flops = layer_flops(run.model, layer, sample_length(run));
  const bool experts = layout::layer_kind(run.model, layer).is_moe();
  const auto selected = [&](const char* module) { return run.recompute.recomputes(module); };
  double linears = 0;
  if (full || selected(experts ? "moe" : "mlp"))
    linears = flops.mlp;
  else if (selected("shared_experts"))
    linears = flops.shared;
  if (full || selected("mla_up_proj")) linears += full ? flops.projections : flops.up_projections;
  return {.linears = linears, .attention = full || selected("core_attn") ? flops.attention : 0};
}

}  // namespace

TrainingFlops recomputed_flops(const config::Run& run, std::int64_t sequences) {
  const config::Model& m = run.model;
  const auto samples = static_cast<double>(sequences);
  TrainingFlops sum;
  const auto add = [&](std::int64_t layer, bool full) {
    const TrainingFlops one = recomputed_layer_flops(run, layer, full);
    sum.linears += samples * one.linears;
    sum.attention += samples * one.attention;
  };
  for (const layout::StageBlocks& stage : layout::split_stages(m, run.parallel)) {
    const layout::LayerCounts recomputed = layout::recomputed_layers(run, stage);
    for (std::int64_t i = 0; i < stage.layers().size(); ++i)
      add(stage.layers().first + i, i < recomputed.dense + recomputed.experts);
  }
  const bool recomputes_mtp = layout::recomputes_mtp_layers(run.recompute);
  const auto hidden = static_cast<double>(m.hidden_size);
  for (std::int64_t i = 0; i < m.mtp_num_layers; ++i) {
    add(m.num_layers + i, recomputes_mtp);
    if (recomputes_mtp)
      sum.linears += samples * static_cast<double>(run.training.seq_length) * 4 * hidden * hidden;
  }
  return sum;
}

}  // namespace colonnade::cost
