// Rules of what the backward pass makes again.
#include <algorithm>

#include "colonnade/config/parse.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool selective(const Run& r) { return r.recompute.granularity == "selective"; }

Broken full_needs(const Run& r) {
  const auto& c = r.recompute;
  if (!c.full() || (c.method && c.num_layers)) return std::nullopt;
  return Finding{"--recompute-granularity",
                 "full needs --recompute-method and --recompute-num-layers",
                 fmt::format("{} and {}", c.method.value_or("no method"),
                             c.num_layers ? text(std::int64_t{*c.num_layers}) : "no layers"),
                 {{"recompute_method", c.method.value_or("uniform")},
                  {"recompute_num_layers", text(std::int64_t{c.num_layers.value_or(1)})}},
                 ""};
}

Broken distributed(const Run& r) {
  if (!r.recompute.full() || !r.recompute.distribute_saved) return std::nullopt;
  return Finding{
      "--distribute-saved-activations",
      "is not part of this version",
      "true",
      {{"distribute_saved_activations", "false"}},
      "leave it out; with --sequence-parallel tensor ranks keep a part each, and gather no more for it"};
}

/// Whether the model has parts of this name.
bool has_part(const Run& r, const std::string& module) {
  const auto kinds = layout::layers_with_experts(r.model);
  const bool experts = std::ranges::find(kinds, true) != kinds.end();
  if (module == "mla_up_proj") return r.model.latent.enabled;
  if (module == "mlp") return std::ranges::find(kinds, false) != kinds.end();
  if (module == "moe" || module == "moe_act") return experts;
  if (module == "shared_experts") return experts && r.model.moe.shared_expert_intermediate_size > 0;
  return true;
}

/// The modules without those that `out` names.
std::string without(const Run& r, const std::vector<std::string>& out) {
  std::vector<std::string> left;
  for (const std::string& module : r.recompute.modules)
    if (std::ranges::find(out, module) == out.end()) left.push_back(module);
  return left.empty() ? "core_attn" : fmt::format("{}", fmt::join(left, " "));
}

Broken missing_parts(const Run& r) {
  if (!selective(r) || r.model.num_layers < 1) return std::nullopt;
  std::vector<std::string> missing;
  for (const std::string& module : r.recompute.modules)
    if (!has_part(r, module)) missing.push_back(module);
  if (missing.empty()) return std::nullopt;
  return Finding{"--recompute-modules",
                 "must be parts of this model's layers",
                 fmt::format("{}", fmt::join(missing, " ")),
                 {{"recompute_modules", without(r, missing)}},
                 "leave them out"};
}

Broken nested(const Run& r) {
  const auto& c = r.recompute;
  if (!c.selects("moe") || !(c.selects("moe_act") || c.selects("shared_experts"))) return std::nullopt;
  return Finding{"--recompute-modules",
                 "moe makes moe_act and shared_experts again too",
                 fmt::format("{}", fmt::join(c.modules, " ")),
                 {{"recompute_modules", without(r, {"moe_act", "shared_experts"})}},
                 "leave them out"};
}

constexpr Rule kRecompute[] = {
    {"recompute-full", true, full_needs, "recompute_granularity=full",
     "How many layers are made again together decides what is kept."},
    {"recompute-distributed", true, distributed,
     "recompute_granularity=full; recompute_method=uniform; recompute_num_layers=1; "
     "distribute_saved_activations=true",
     "Nothing cuts the kept inputs yet.", "recompute_granularity"},
    {"recompute-modules", true, missing_parts, "recompute_granularity=selective; recompute_modules=moe",
     "What is not there cannot be made again.",
     "recompute_granularity num_experts moe_layer_freq num_layers"},
    {"recompute-nested", true, nested,
     "num_experts=8; add_bias_linear=false; sequence_parallel=true; recompute_granularity=selective; "
     "recompute_modules=moe moe_act",
     "What is made again as a whole keeps nothing of its parts.", "recompute_granularity"},
};

}  // namespace

std::span<const Rule> recompute_rules() { return kRecompute; }

}  // namespace colonnade::rules
