// Load balance of experts, from the counts of a step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace colonnade::record {

/// Load of a step, one number per MoE layer in layer order:
///   "expert_balance"   tokens of the most loaded expert / mean over experts
///   "expert_least"     tokens of the least loaded expert / mean over experts
///   "dropped_tokens"   share of the (token, expert) pairs that were dropped; only with a capacity
/// `counts` are those of job::StepReport; empty for a model without experts. Tokens are counted before any is
/// dropped, as for Megatron's expert bias and losses.
std::vector<std::pair<std::string, std::vector<double>>> expert_load(
    const std::map<std::string, std::vector<double>>& counts);

/// Tokens routed to each expert, per MoE layer in layer order.
std::vector<std::vector<std::int64_t>> tokens_per_expert(
    const std::map<std::string, std::vector<double>>& counts);

}  // namespace colonnade::record
