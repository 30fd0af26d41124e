// The borders between tensor-parallel and replicated activations, each with its two directions.
// Source: Korthikanti et al. 2022; Megatron's core/tensor_parallel/mappings.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "colonnade/comm/group.h"

namespace colonnade::layers {

/// Without autograd: [s / tp, ...] -> [s, ...], the members' slices in rank order.
at::Tensor gather_sequence(const at::Tensor& x, const comm::Group& tp, std::string_view what);
/// Without autograd: [s, ...] partial sums -> this rank's [s / tp, ...] of the sum.
at::Tensor reduce_scatter_sequence(const at::Tensor& x, const comm::Group& tp, std::string_view what);

/// The same on every rank, or with `by_sequence` this rank's [s / tp, ...] of it -> all of it, for heads that
/// differ by rank; backward: the ranks' gradients are summed, this rank's slice of them with `by_sequence`.
at::Tensor for_all_heads(const at::Tensor& x, const comm::Group& tp, bool by_sequence);
/// Partial sums -> the sum on every rank; backward: identity.
at::Tensor reduce_partial(const at::Tensor& x, const comm::Group& tp);
/// Partial sums [s, ...] -> this rank's slice [s / tp, ...] of the sum; backward: gather.
at::Tensor scatter_partial(const at::Tensor& x, const comm::Group& tp);

/// The first row [...] of what all ranks have together of x [s, ...]: where it is cut by sequence, that of
/// rank 0 on every rank; backward: its gradient, which is the same on all of them, goes to the rank that has
/// the row.
at::Tensor first_row(const at::Tensor& x, const comm::Group& tp, bool by_sequence);

}  // namespace colonnade::layers
