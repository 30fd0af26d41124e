// Rules for activation recomputation.
#include <algorithm>

#include "colonnade/config/parse.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool is_selective(const Run& r) { return r.recompute.granularity == "selective"; }

Broken full_recompute(const Run& r) {
  const auto& c = r.recompute;
  if (!c.is_full() || (c.method && c.num_layers)) return std::nullopt;
  return Finding{"--recompute-granularity",
                 "full requires --recompute-method and --recompute-num-layers",
                 fmt::format("{} and {}", c.method.value_or("no method"),
                             c.num_layers ? text(std::int64_t{*c.num_layers}) : "no number"),
                 {{"recompute_method", c.method.value_or("uniform")},
                  {"recompute_num_layers", text(std::int64_t{c.num_layers.value_or(1)})}},
                 ""};
}

Broken distributed_activations(const Run& r) {
  if (!r.recompute.is_full() || !r.recompute.distribute_saved_activations) return std::nullopt;
  return Finding{
      "--distribute-saved-activations",
      "is not supported",
      "true",
      {{"distribute_saved_activations", "false"}},
      "remove the flag; --sequence-parallel shards saved activations without additional communication"};
}

/// Selected modules except `removed`.
std::string modules_without(const Run& r, const std::vector<std::string>& removed) {
  std::vector<std::string> left;
  for (const std::string& module : r.recompute.modules)
    if (std::ranges::find(removed, module) == removed.end()) left.push_back(module);
  return left.empty() ? "core_attn" : fmt::format("{}", fmt::join(left, " "));
}

Broken missing_modules(const Run& r) {
  if (!is_selective(r) || r.model.num_layers < 1) return std::nullopt;
  std::vector<std::string> missing;
  for (const std::string& module : r.recompute.modules)
    if (!layout::has_module(r.model, module)) missing.push_back(module);
  if (missing.empty()) return std::nullopt;
  return Finding{"--recompute-modules",
                 "must name modules of this model",
                 fmt::format("{}", fmt::join(missing, " ")),
                 {{"recompute_modules", modules_without(r, missing)}},
                 "remove these modules"};
}

Broken nested_modules(const Run& r) {
  const auto& c = r.recompute;
  if (!c.recomputes("moe") || !(c.recomputes("moe_act") || c.recomputes("shared_experts")))
    return std::nullopt;
  return Finding{"--recompute-modules",
                 "must not name moe_act or shared_experts with moe, which includes them",
                 fmt::format("{}", fmt::join(c.modules, " ")),
                 {{"recompute_modules", modules_without(r, {"moe_act", "shared_experts"})}},
                 "remove these modules"};
}

constexpr Rule kRecompute[] = {
    {"recompute-full", true, full_recompute, "recompute_granularity=full",
     "Method and number of layers decide which layer inputs are saved."},
    {"recompute-distributed", true, distributed_activations,
     "recompute_granularity=full; recompute_method=uniform; recompute_num_layers=1; "
     "distribute_saved_activations=true",
     "Sharding saved layer inputs over tensor-parallel ranks is not implemented.", "recompute_granularity"},
    {"recompute-modules", true, missing_modules, "recompute_granularity=selective; recompute_modules=moe", "",
     "recompute_granularity num_experts moe_layer_freq num_layers"},
    {"recompute-nested", true, nested_modules,
     "num_experts=8; add_bias_linear=false; sequence_parallel=true; recompute_granularity=selective; "
     "recompute_modules=moe moe_act",
     "Recomputing the MoE layer recomputes its submodules.", "recompute_granularity"},
};

}  // namespace

std::span<const Rule> recompute_rules() { return kRecompute; }

}  // namespace colonnade::rules
