// Settings that have no or limited effect in a run: accepted and reported.
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/config/schema.h"

namespace colonnade::rules {

/// A given setting without effect: "--fim-rate" "has no effect without --fim-data".
struct NoEffect {
  const config::Setting* setting = nullptr;
  std::string why;
};

/// Given settings whose prerequisite setting is missing.
std::vector<NoEffect> without_prerequisites(const config::Run& run);

/// One line for each given setting that has no effect in training, such as --min-lr with a constant learning
/// rate, and one if --deterministic-mode is limited. Megatron accepts these settings too; rank 0 reports them
/// once.
std::vector<std::string> no_effect_notes(const config::Run& run);

}  // namespace colonnade::rules
