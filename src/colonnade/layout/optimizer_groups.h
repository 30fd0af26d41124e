// Parameter groups of the optimizer: which optimizer updates a parameter, with which multipliers, or none.
// layout::ParamGroup is another thing: the mesh axes of a parameter. Source: param_groups of
// torch.optim.Optimizer; Megatron's core/optimizer (_get_param_groups).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/training.h"
#include "colonnade/layout/param.h"

namespace colonnade::layout {

enum class ParamProperty : std::uint8_t {
  kAny,
  kWeightDecay,     ///< ParamSpec::weight_decay: neither a bias nor a norm
  kOneDimensional,  ///< of the global shape
  kMatrix,          ///< layout::is_matrix()
};

/// Learning-rate schedules of a run.
enum class LrSchedule : std::uint8_t {
  kMain,
  kDecoupled,  ///< --decoupled-lr
};

/// Parameters whose name matches `names` and which have `property`. The update of such a parameter uses
/// lr_multiplier x learning rate, weight_decay_multiplier x weight decay of the step, and eps_multiplier x
/// epsilon of the optimizer.
struct OptimizerGroup {
  std::string names = "*";  ///< glob over global names (fnmatch(3)): `*` matches any characters, also dots
  ParamProperty property = ParamProperty::kAny;
  std::optional<config::OptimizerKind> optimizer = {};  ///< unset: --optimizer
  LrSchedule schedule = LrSchedule::kMain;
  double lr_multiplier = 1;
  double weight_decay_multiplier = 1;
  double eps_multiplier = 1;
  /// Its values stay: no main copy, no states, no update, and its gradient does not count in the norm.
  bool frozen = false;

  friend bool operator==(const OptimizerGroup&, const OptimizerGroup&) = default;
};

/// Whether the pattern of `group` matches a parameter.
bool matches(const OptimizerGroup& group, const ParamSpec& spec);

/// Groups in order: a parameter belongs to the first that matches it. The groups of the settings follow
/// `overrides`; the last one matches every parameter. First come those of --freeze-parameters, then word
/// embeddings and output layer (LrSchedule::kDecoupled). Weight decay applies to parameters with
/// ParamSpec::weight_decay and, with --apply-wd-to-qk-layernorm, to query and key norms. With muon all
/// parameters but matrices, and word embeddings and output layer, have Muon::scalar_optimizer. Source:
/// Megatron's core/optimizer/emerging_optimizers.py (_is_nonlinear_or_embedding).
///
/// muP with a width multiplier m (Optimizer::mup): matrices other than embeddings and output layer have 1 / m
/// of the learning rate, and with adam of epsilon. With sgd they keep the rate, and all others have m times
/// the rate, except word embeddings and output layer with --decoupled-lr. Muon's own matrices keep the rate.
/// Source: Megatron's core/optimizer/__init__.py (get_mup_config_overrides); Yang et al. 2022, table 8.
std::vector<OptimizerGroup> optimizer_groups(const config::Optimizer& settings,
                                             std::vector<OptimizerGroup> overrides = {});

/// Index of the first of `groups` that matches `spec`.
std::size_t first_match(const std::vector<OptimizerGroup>& groups, const ParamSpec& spec);

}  // namespace colonnade::layout
