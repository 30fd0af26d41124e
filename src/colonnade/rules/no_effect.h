// Settings that have no effect in a run, or less than they say: accepted and reported.
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/config/schema.h"

namespace colonnade::rules {

/// A given setting without effect: "--fim-rate" "does nothing without --fim-data".
struct NoEffect {
  const config::Setting* setting = nullptr;
  std::string why;
};

/// The given settings that have an effect only beside another one, which is not there.
std::vector<NoEffect> without_companions(const config::Run& run);

/// One line for each given setting that has no effect in training, such as --min-lr beside a constant rate,
/// and one where --deterministic-mode holds less. Megatron takes them too; rank 0 reports them once.
std::vector<std::string> idle_habits(const config::Run& run);

}  // namespace colonnade::rules
