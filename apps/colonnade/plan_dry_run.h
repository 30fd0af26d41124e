// `plan --dry-run`: the plan held against the real code, rank by rank.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "colonnade/config/parse.h"

namespace colonnade::app {

/// Adds faults: --dry-run needs one of --rank and --all, which need it.
void check_dry_run(config::Parsed& parsed);

/// With --dry-run, of a run that is sound: trains one step of the real code on each rank that --rank or --all
/// names, prints what it held beside the plan, adds the numbers to `json` and checks what the ranks said to
/// each other. Throws Error with every promise that is broken.
void dry_run_ranks(const config::Parsed& parsed, nlohmann::json& json);

}  // namespace colonnade::app
