// Counts what is made again.
#include "colonnade/plan/recompute.h"

#include <algorithm>

#include "colonnade/plan/params/gpt.h"

namespace colonnade::plan {

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

bool keeps_batches(const config::Run& run) {
  const auto selects = [&](const char* module) { return run.recompute.selects(module); };
  return run.recompute.full() || selects("core_attn") || selects("mlp") || selects("moe") ||
         selects("shared_experts");
}

TrainingFlops recomputed_flops(const config::Run& run, std::int64_t sequences) {
  const config::Model& m = run.model;
  const auto all = layers_with_experts(m);
  LayerCounts layers;
  for (const StageBlocks& stage : split_stages(m, run.parallel)) {
    const LayerCounts again = layers_made_again(run, stage);
    layers.dense += again.dense;
    layers.experts += again.experts;
  }
  const auto count = [&](bool experts) {
    return static_cast<std::int64_t>(std::ranges::count(all, experts));
  };
  const auto picked = [&](const char* module, bool experts) {
    const std::int64_t whole = experts ? layers.experts : layers.dense;
    return static_cast<double>(run.recompute.selects(module) ? count(experts) : whole);
  };
  const auto hidden = static_cast<double>(m.hidden_size);
  const auto q = static_cast<double>(m.num_attention_heads * m.kv_channels);
  const auto kv = static_cast<double>(m.num_query_groups * m.kv_channels);
  const auto length = static_cast<double>(run.training.seq_length);
  const double tokens = length * static_cast<double>(sequences);
  const double factor = 2 * hidden * (m.gated() ? 3 : 2);
  const double routed = static_cast<double>(m.moe.router_topk * m.moe.ffn_hidden_size);
  const double shared = static_cast<double>(m.moe.shared_expert_intermediate_size);
  const double whole = static_cast<double>(layers.dense + layers.experts);
  const double mlps =
      factor * (picked("mlp", false) * static_cast<double>(m.ffn_hidden_size) + picked("moe", true) * routed +
                std::max(picked("moe", true), picked("shared_experts", true)) * shared);
  const double attentions = run.recompute.selects("core_attn") ? static_cast<double>(m.num_layers) : whole;
  return {.linears = tokens * (mlps + whole * 2 * (hidden * (q + 2 * kv) + q * hidden)),
          .attention = tokens * length * attentions * 2 * q};
}

}  // namespace colonnade::plan
