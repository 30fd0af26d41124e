// How evenly experts are used, out of the counts of a step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace colonnade::record {

/// Numbers of a step, one for each layer with experts, in the order of the layers:
///   "expert_balance"   tokens of the busiest expert over the mean of all
///   "expert_least"     tokens of the idlest expert over that mean
///   "dropped_tokens"   share of the chosen pairs of token and expert that were dropped; with a capacity only
/// `counts` are those of job::StepReport; none for a model without experts. Source: what Megatron's expert
/// bias and losses look at, tokens before any is dropped.
std::vector<std::pair<std::string, std::vector<double>>> expert_load(
    const std::map<std::string, std::vector<double>>& counts);

/// The tokens that chose each expert, for each layer with experts in the order of the layers.
std::vector<std::vector<std::int64_t>> tokens_per_expert(
    const std::map<std::string, std::vector<double>>& counts);

}  // namespace colonnade::record
