// Expert capacity and assumed expert load. Source: get_capacity of Megatron's
// core/transformer/moe/moe_utils.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "colonnade/config/moe.h"

namespace colonnade::layout {

/// Capacity per expert for `tokens` routed by one rank: ceil(tokens * k / experts * factor), at most
/// `tokens`; 0 without a factor. `tokens` is after sequence and context parallelism.
inline std::int64_t expert_capacity(const config::Moe& moe, std::int64_t tokens) {
  if (!moe.expert_capacity_factor) return 0;
  const double share = static_cast<double>(tokens * moe.router_topk) / static_cast<double>(moe.num_experts);
  return std::min(tokens, static_cast<std::int64_t>(std::ceil(share * *moe.expert_capacity_factor)));
}

/// Rows that a rank with `tokens` dispatches, if no token within the capacity is dropped.
inline std::int64_t expert_rows(const config::Moe& moe, std::int64_t tokens) {
  const std::int64_t chosen = tokens * moe.router_topk;
  if (!moe.expert_capacity_factor) return chosen;
  const std::int64_t most = moe.num_experts * expert_capacity(moe, tokens);
  return moe.pad_expert_input_to_capacity ? most : std::min(chosen, most);
}

/// Upper bound of Moe::assumed_imbalance for experts over `ranks`: a token selects an expert at most once,
/// and an expert accepts at most its capacity. 1: the settings fix the load of each rank.
inline double largest_imbalance(const config::Moe& moe, int ranks) {
  if (ranks == 1 || moe.pad_expert_input_to_capacity) return 1;
  const double once = static_cast<double>(moe.num_experts) / static_cast<double>(moe.router_topk);
  const double most = std::max(1.0, std::min<double>(ranks, once));
  return std::clamp(moe.expert_capacity_factor.value_or(most), 1.0, most);
}

/// Load of expert rank `rank` relative to the mean, as plans and dry runs assume it: in every layer and
/// micro-batch the first of `ranks` expert ranks has Moe::assumed_imbalance times the mean (limited by
/// largest_imbalance), and the others share the rest equally.
inline double assumed_share(const config::Moe& moe, int rank, int ranks) {
  const double first = std::min(moe.assumed_imbalance, largest_imbalance(moe, ranks));
  if (rank == 0 || ranks == 1) return first;
  return (ranks - first) / (ranks - 1);
}

/// Rows per expert of `chosen` rows that one rank dispatches.
inline std::vector<std::int64_t> assumed_rows(const config::Moe& moe, std::int64_t chosen, int ranks) {
  const std::int64_t of_rank = moe.num_experts / ranks, others = moe.num_experts - of_rank;
  const double even = static_cast<double>(chosen) / ranks;
  const std::int64_t first = others == 0 ? chosen : std::llround(even * assumed_share(moe, 0, ranks));
  std::vector<std::int64_t> rows;
  const auto share = [&rows](std::int64_t all, std::int64_t experts) {
    for (std::int64_t i = 0; i < experts; ++i) rows.push_back(all * (i + 1) / experts - all * i / experts);
  };
  share(first, of_rank);
  share(chosen - first, others);
  return rows;
}

}  // namespace colonnade::layout
