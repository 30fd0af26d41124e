// Token dropping by expert capacity.
// Source: apply_router_token_dropping of Megatron's core/transformer/moe/moe_utils.py; Lepikhin et al. 2020.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colonnade::ops {

/// Which (token, choice) pairs an expert keeps when more than `capacity` are routed to it.
enum class DropPolicy : std::uint8_t { kProbs, kPosition };

/// experts int64 [n, k] in [0, num_experts), weights [n, k] -> experts with num_experts in place of dropped
/// pairs. Each expert keeps its `capacity` pairs of largest weight (ties by token order), or its first ones
/// in token order. No device synchronization, no gradient. Returns `experts` unchanged on meta.
at::Tensor apply_capacity(const at::Tensor& experts, const at::Tensor& weights, std::int64_t num_experts,
                          std::int64_t capacity, DropPolicy keep);

}  // namespace colonnade::ops
