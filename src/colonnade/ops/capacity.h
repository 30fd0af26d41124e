// Dropping what an expert cannot take.
// Source: apply_router_token_dropping of Megatron's core/transformer/moe/moe_utils.py; Lepikhin et al. 2020.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colonnade::ops {

/// Which pairs an expert keeps, when more than `capacity` come.
enum class Keep : std::uint8_t { kLargestWeights, kFirstTokens };

/// experts int64 [n, k] in [0, num_experts), weights [n, k] -> experts, num_experts in place of those that
/// are dropped: each expert keeps its `capacity` pairs of largest weight, equal ones by their token, or its
/// first ones by their token. Nothing waits for the device; no gradient. On meta the experts as they are.
at::Tensor within_capacity(const at::Tensor& experts, const at::Tensor& weights, std::int64_t num_experts,
                           std::int64_t capacity, Keep keep);

}  // namespace colonnade::ops
