// Settings that do nothing in a run, or less than they say, and are let through all the same.
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::plan {

/// One line for each given setting that does nothing in training but that scripts for Megatron give by habit,
/// such as --min-lr beside a constant rate, and one where --deterministic-mode holds less. Others that do
/// nothing are refused (plan/rules.h).
std::vector<std::string> idle_habits(const config::Run& run);

}  // namespace colonnade::plan
