// Mappings between replicated, sequence-sharded and tensor-parallel activations, with their backward passes.
// Source: Korthikanti et al. 2022; Megatron's core/tensor_parallel/mappings.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "colonnade/comm/group.h"

namespace colonnade::layers {

/// All-gather without autograd: [s / tp, ...] -> [s, ...], shards in rank order.
at::Tensor gather_sequence(const at::Tensor& x, const comm::Group& tp, std::string_view what);
/// Reduce-scatter without autograd: partial sums [s, ...] -> this rank's shard [s / tp, ...] of the sum.
at::Tensor reduce_scatter_sequence(const at::Tensor& x, const comm::Group& tp, std::string_view what);

/// Entry of a tensor-parallel region (Megatron's f): identity forward, all-reduce backward. With
/// `sequence_parallel`: all-gather [s / tp, ...] -> [s, ...] forward, reduce-scatter backward.
at::Tensor enter_tp_region(const at::Tensor& x, const comm::Group& tp, bool sequence_parallel);
/// Exit of a tensor-parallel region (Megatron's g): all-reduce forward, identity backward.
at::Tensor reduce_from_tp_region(const at::Tensor& x, const comm::Group& tp);
/// Exit with sequence parallelism: partial sums [s, ...] -> [s / tp, ...] by reduce-scatter; backward:
/// all-gather.
at::Tensor reduce_scatter_to_sp_region(const at::Tensor& x, const comm::Group& tp);

/// First token [...] of x [s, ...]; with `sequence_parallel` broadcast from tensor rank 0. Backward: the
/// gradient, equal on all ranks, goes to the rank that holds the token.
at::Tensor first_token(const at::Tensor& x, const comm::Group& tp, bool sequence_parallel);

}  // namespace colonnade::layers
