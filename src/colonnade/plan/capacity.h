// How many rows an expert takes. Source: get_capacity of Megatron's core/transformer/moe/moe_utils.py.
#pragma once

#include <algorithm>
#include <cmath>

#include "colonnade/config/moe.h"

namespace colonnade::plan {

/// Of `tokens` that one rank's router sees at once: ceil(tokens * k / experts * factor), at most all of them;
/// 0 without a factor. Sequence and context parallelism make the tokens of a rank fewer.
inline std::int64_t expert_capacity(const config::Moe& moe, std::int64_t tokens) {
  if (!moe.expert_capacity_factor) return 0;
  const double share = static_cast<double>(tokens * moe.router_topk) / static_cast<double>(moe.num_experts);
  return std::min(tokens, static_cast<std::int64_t>(std::ceil(share * *moe.expert_capacity_factor)));
}

/// Rows that a rank with `tokens` sends, when all experts get equally many.
inline std::int64_t expert_rows(const config::Moe& moe, std::int64_t tokens) {
  const std::int64_t chosen = tokens * moe.router_topk;
  if (!moe.expert_capacity_factor) return chosen;
  const std::int64_t most = moe.num_experts * expert_capacity(moe, tokens);
  return moe.pad_expert_input_to_capacity ? most : std::min(chosen, most);
}

}  // namespace colonnade::plan
