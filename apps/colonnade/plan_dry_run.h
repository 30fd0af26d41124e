// `plan --dry-run`: compares the plan with the real code, rank by rank.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "colonnade/config/parse.h"

namespace colonnade::app {

/// Adds faults: --dry-run requires exactly one of --rank and --all, and they require it.
void check_dry_run(config::Parsed& parsed);

/// With --dry-run, for a valid run: trains one step of the real code on each rank of --rank or --all, prints
/// its memory alongside the plan, adds the numbers to `json`, and checks the ranks' communication. Throws
/// Error with every mismatch.
void dry_run_ranks(const config::Parsed& parsed, nlohmann::json& json);

}  // namespace colonnade::app
