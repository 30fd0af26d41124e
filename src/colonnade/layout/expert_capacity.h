// How many rows an expert takes. Source: get_capacity of Megatron's core/transformer/moe/moe_utils.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "colonnade/config/moe.h"

namespace colonnade::layout {

/// Of `tokens` that one rank's router sees at once: ceil(tokens * k / experts * factor), at most all of them;
/// 0 without a factor. Sequence and context parallelism make the tokens of a rank fewer.
inline std::int64_t expert_capacity(const config::Moe& moe, std::int64_t tokens) {
  if (!moe.expert_capacity_factor) return 0;
  const double share = static_cast<double>(tokens * moe.router_topk) / static_cast<double>(moe.num_experts);
  return std::min(tokens, static_cast<std::int64_t>(std::ceil(share * *moe.expert_capacity_factor)));
}

/// Rows that a rank with `tokens` sends; none is dropped that an expert has room for.
inline std::int64_t expert_rows(const config::Moe& moe, std::int64_t tokens) {
  const std::int64_t chosen = tokens * moe.router_topk;
  if (!moe.expert_capacity_factor) return chosen;
  const std::int64_t most = moe.num_experts * expert_capacity(moe, tokens);
  return moe.pad_expert_input_to_capacity ? most : std::min(chosen, most);
}

/// The most that Moe::assumed_imbalance can be for experts that `ranks` share: a token chooses an expert
/// once, and an expert takes no more than its capacity. 1: the settings fix what each rank receives.
inline double largest_imbalance(const config::Moe& moe, int ranks) {
  if (ranks == 1 || moe.pad_expert_input_to_capacity) return 1;
  const double once = static_cast<double>(moe.num_experts) / static_cast<double>(moe.router_topk);
  const double most = std::max(1.0, std::min<double>(ranks, once));
  return std::clamp(moe.expert_capacity_factor.value_or(most), 1.0, most);
}

/// What a plan and its dry runs assume of routing: in every layer and micro-batch each rank sends as many
/// rows to the experts of the first of the `ranks` that share them as Moe::assumed_imbalance says, if it can
/// be, and to those of the others equal parts of the rest. Rows that expert rank `rank` receives over the
/// mean.
inline double assumed_share(const config::Moe& moe, int rank, int ranks) {
  const double fullest = std::min(moe.assumed_imbalance, largest_imbalance(moe, ranks));
  if (rank == 0 || ranks == 1) return fullest;
  return (ranks - fullest) / (ranks - 1);
}

/// Of `chosen` rows that one rank sends, those of each expert.
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
