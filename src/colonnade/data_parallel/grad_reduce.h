// Reductions of gradients over data-parallel ranks in a chosen dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "colonnade/comm/group.h"

namespace colonnade::data_parallel {

/// Communication dtype and algorithm of gradient reductions.
struct GradReduce {
  at::ScalarType dtype = at::kFloat;  ///< dtype sent (config::Dtypes::gradient_wire)
  /// Reduce-scatter in another dtype as an all-to-all, with the sum in the dtype of the sums, so that only
  /// addends are rounded (--ddp-reduce-scatter-with-fp32-accumulation).
  bool all_to_all = false;
};

/// Sums `all` over the group. `needed` receives this member's part of the sum: all of it (all-reduce), or an
/// equal share (reduce-scatter), and may be a view of `all` at that place. If the dtype sent differs from
/// that of `needed`, a copy of `all` is sent (none if `all` has it already); the result arrives in that
/// dtype, and wait() writes it into `needed`. Both copies live until then. A group of one sends and rounds
/// nothing. Communication: one all-reduce, or reduce-scatter or all-to-all, of `all` in that dtype.
/// Collective.
comm::Work reduce_over(const comm::Group& group, const at::Tensor& all, const at::Tensor& needed,
                       const GradReduce& grad_reduce, std::string_view what);

}  // namespace colonnade::data_parallel
