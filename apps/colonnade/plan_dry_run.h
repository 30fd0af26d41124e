// `plan --dry-run`: the plan held against the real code, rank by rank.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "colonnade/config/parse.h"

namespace colonnade::app {

/// The ranks to run for --dry-run with --rank or --all; empty without them. Other combinations are faults.
std::vector<int> ranks_to_run(config::Parsed& parsed);

/// Trains one step of the real code on each rank, prints what it held beside the plan, adds the numbers to
/// `json` and checks what the ranks said to each other. Throws Error with every promise that is broken.
void dry_run_ranks(const config::Run& run, const std::vector<int>& ranks, nlohmann::json& json);

}  // namespace colonnade::app
