// See layer_kind.h.
#include "colonnade/layout/layer_kind.h"

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/config/layer_pattern.h"
#include "colonnade/config/stacks.h"
#include "colonnade/layout/expert_capacity.h"

namespace colonnade::layout {

std::vector<LayerKind> layer_kinds(const config::Model& model) {
  const Mixer mixer = model.latent.enabled ? Mixer::kLatentAttention : Mixer::kAttention;
  std::vector<LayerKind> kinds(static_cast<std::size_t>(model.total_layers()), {.mixer = mixer});
  for (std::size_t i = 0; i < kinds.size(); ++i)
    kinds[i].cross_attention = config::stack_of_layer(model, static_cast<std::int64_t>(i)) > 0;
  if (!routes_tokens(model)) return kinds;
  const auto moe = config::expand_layer_freq(model.moe.layer_freq, model.num_layers);
  COL_CHECK(moe, "--moe-layer-freq must be valid for {} layers; got {}", model.num_layers,
            model.moe.layer_freq);
  for (std::size_t i = 0; i < moe->size(); ++i)
    if ((*moe)[i]) kinds[i].channel_mixer = ChannelMixer::kMoe;
  return kinds;
}

bool routes_tokens(const config::Model& model) { return model.moe.num_experts > 0; }

bool sums_router_counts(const config::Model& model) {
  const auto& balancing = model.moe.router_load_balancing_type;
  return routes_tokens(model) &&
         (model.moe.router_enable_expert_bias || std::ranges::count(balancing, "global_aux_loss") > 0);
}

double assumed_load(const config::Model& model, int rank, int ranks) {
  return assumed_share(model.moe, rank, ranks);
}

std::vector<ParamGroup> param_groups(const config::Model& model) {
  if (!routes_tokens(model)) return {ParamGroup::kDense};
  return {ParamGroup::kDense, ParamGroup::kExpert};
}

bool dispatches_tokens(const config::Model& model, const config::Parallel& parallel) {
  return routes_tokens(model) && size_of(parallel, kDispatchAxes) > 1;
}

LayerKind layer_kind(const config::Model& model, std::int64_t layer) {
  const std::int64_t last = model.total_layers() - 1;
  return layer_kinds(model)[static_cast<std::size_t>(std::min(layer, last))];
}

bool has_module(const config::Model& model, std::string_view module) {
  const std::vector<LayerKind> kinds = layer_kinds(model);
  const bool experts = std::ranges::count(kinds, true, &LayerKind::is_moe) > 0;
  if (module == "mla_up_proj")
    return std::ranges::count(kinds, Mixer::kLatentAttention, &LayerKind::mixer) > 0;
  if (module == "mlp") return std::ranges::count(kinds, false, &LayerKind::is_moe) > 0;
  if (module == "moe" || module == "moe_act") return experts;
  if (module == "shared_experts") return experts && model.moe.shared_expert_intermediate_size > 0;
  return true;
}

std::int64_t attention_window(const config::Model& model, std::int64_t layer) {
  if (model.window_size == 0 || model.window_attn_skip_freq.empty()) return model.window_size;
  const auto kinds = config::expand_skip_freq(model.window_attn_skip_freq, model.num_layers);
  COL_CHECK(kinds, "--window-attn-skip-freq must be valid for {} layers; got {}", model.num_layers,
            model.window_attn_skip_freq);
  return (*kinds)[static_cast<std::size_t>(std::min(layer, model.num_layers - 1))] ? model.window_size : 0;
}

bool has_rope(const config::Model& model, std::int64_t layer) {
  if (!model.has_rotary() || model.no_rope_freq.empty()) return model.has_rotary();
  const auto rotates = config::expand_no_rope_freq(model.no_rope_freq, model.num_layers);
  COL_CHECK(rotates, "--no-rope-freq must be valid for {} layers; got {}", model.num_layers,
            model.no_rope_freq);
  return (*rotates)[static_cast<std::size_t>(std::min(layer, model.num_layers - 1))];
}

bool is_bidirectional(const config::Model& model, std::int64_t layer) {
  return model.bidirectional || !config::is_in_last_stack(model, layer);
}

}  // namespace colonnade::layout
