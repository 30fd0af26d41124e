// See optimizer_groups.h.
#include "colonnade/layout/optimizer_groups.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/config/optimizers.h"

namespace colonnade::layout {
namespace {

bool has(ParamProperty property, const ParamSpec& spec) {
  switch (property) {
    case ParamProperty::kWeightDecay:
      return spec.weight_decay;
    case ParamProperty::kOneDimensional:
      return spec.shape.size() == 1;
    case ParamProperty::kMatrix:
      return is_matrix(spec);
    case ParamProperty::kAny:
      break;
  }
  return true;
}

/// Inserts muP's groups before `first`, the first group behind word embeddings and output layer, and sets
/// multipliers.
void apply_mup(const config::Optimizer& settings, std::vector<OptimizerGroup>& groups, std::size_t first) {
  const double m = settings.mup.width_mult;
  if (m == 1 || settings.optimizer == config::OptimizerKind::kMuon) return;
  const bool sgd = settings.optimizer == config::OptimizerKind::kSgd;
  const bool adam = settings.optimizer == config::OptimizerKind::kAdam;
  if (sgd)
    for (OptimizerGroup& group : groups)
      if (group.schedule != LrSchedule::kDecoupled || !settings.mup.decoupled_embeddings)
        group.lr_multiplier *= m;
  groups.insert(groups.begin() + static_cast<std::ptrdiff_t>(first),
                {{.names = "embedding.*", .property = ParamProperty::kMatrix, .lr_multiplier = sgd ? m : 1},
                 {.property = ParamProperty::kMatrix,
                  .lr_multiplier = sgd ? 1 : 1 / m,
                  .eps_multiplier = adam ? 1 / m : 1}});
}

}  // namespace

bool matches(const OptimizerGroup& group, const ParamSpec& spec) {
  return has(group.property, spec) && ::fnmatch(group.names.c_str(), spec.name.c_str(), 0) == 0;
}

std::vector<OptimizerGroup> optimizer_groups(const config::Optimizer& settings,
                                             std::vector<OptimizerGroup> overrides) {
  std::vector<OptimizerGroup> groups;
  const auto kinds = config::optimizer_kinds(settings);
  const bool has_two = kinds.size() > 1;  // for matrices, and for other parameters
  const std::optional<config::OptimizerKind> scalar = has_two ? std::optional(kinds.back()) : std::nullopt;
  for (const char* names : {"*word_embeddings.weight", "*output_layer.weight"})
    groups.push_back({.names = names, .optimizer = scalar, .schedule = LrSchedule::kDecoupled});
  const std::size_t behind_embeddings = groups.size();
  if (has_two) groups.push_back({.property = ParamProperty::kMatrix});
  groups.push_back({.property = ParamProperty::kWeightDecay, .optimizer = scalar});
  if (settings.apply_wd_to_qk_layernorm)
    for (const char* norm : {"*.q_layernorm.weight", "*.k_layernorm.weight"})
      groups.push_back({.names = norm, .optimizer = scalar});
  groups.push_back({.optimizer = scalar, .weight_decay_multiplier = 0});
  apply_mup(settings, groups, behind_embeddings);
  std::vector<OptimizerGroup> all = std::move(overrides);
  for (const std::string& names : settings.freeze_parameters) all.push_back({.names = names, .frozen = true});
  all.insert(all.end(), groups.begin(), groups.end());
  return all;
}

std::size_t first_match(const std::vector<OptimizerGroup>& groups, const ParamSpec& spec) {
  const auto found =
      std::ranges::find_if(groups, [&](const OptimizerGroup& group) { return matches(group, spec); });
  COL_CHECK(found != groups.end(),
            "{} must match one of the optimizer groups; got {}, none of which matches; end them with `*`",
            spec.name, groups.size());
  return static_cast<std::size_t>(found - groups.begin());
}

}  // namespace colonnade::layout
