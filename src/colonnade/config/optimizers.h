// Facts about every optimizer for planning, rules and checkpoints: names, states, settings. optim/ has the
// arithmetic (optim/update_rule.h).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "colonnade/config/training.h"

namespace colonnade::config {

/// Key of a setting that only some optimizers read.
struct OptimizerSetting {
  std::string_view key;
  /// Part of the saved states that depends on it, so that a resumed run must keep it; "": none.
  std::string_view decides = "";
};

struct OptimizerTraits {
  OptimizerKind kind;
  std::string_view name;  ///< value of --optimizer, and the kind of the states in a checkpoint
  /// States in the order of optim::Segment::states, each as large as the parameter and read and written by
  /// every update. A checkpoint names them optimizer.<state>.<parameter>.
  std::span<const std::string_view> states;
  std::span<const OptimizerSetting> settings;
  bool (*is_stateless)(const Optimizer&);  ///< whether these settings need no states
  bool updates_matrices = false;           ///< whole matrices, not single elements; other parameters have
                                           ///< Muon::scalar_optimizer
};

/// By OptimizerKind, in the order of its enumerators.
std::span<const OptimizerTraits> optimizers();
const OptimizerTraits& traits_of(OptimizerKind kind);

/// States that `kind` keeps under these settings.
std::span<const std::string_view> optimizer_states(OptimizerKind kind, const Optimizer& settings);

/// Settings of all optimizers, each once.
std::vector<OptimizerSetting> optimizer_settings();

/// Optimizers of a run: --optimizer, and with muon that of all parameters other than matrices.
std::vector<OptimizerKind> optimizer_kinds(const Optimizer& settings);

/// Whether an optimizer of the run reads the setting `key`, which is one of OptimizerTraits::settings.
bool optimizer_reads(const Optimizer& settings, std::string_view key);

}  // namespace colonnade::config
