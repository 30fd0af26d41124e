// Sums of gradients over data ranks, in the type in which they travel.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

#include "colonnade/comm/group.h"

namespace colonnade::data_parallel {

/// How gradients travel.
struct Travel {
  std::optional<at::ScalarType> in = {};  ///< the type of what is sent; unset: that of the sums
  /// Of what is scattered in another type, everybody sends its addends to who needs the sum, which adds them
  /// up in the type of the sums: nothing but the addends is rounded.
  bool exchanged = false;
};

/// Sums `all` over the group. `needed` gets what this member needs of the sum: all of it, or as many elements
/// as each of the members does, which may be those at its place in `all`.
/// What is sent in another type than that of `needed` is a copy, unless `all` has that type already; the sum
/// (or what is exchanged, as many elements as `all`) arrives in it, and wait() writes it into `needed`. Both
/// copies live until then. A group of one sends and rounds nothing. Communication: one all-reduce, or
/// reduce-scatter or all-to-all, of `all` in that type. Collective.
comm::Work sum_over(const comm::Group& group, const at::Tensor& all, const at::Tensor& needed,
                    const Travel& travel, std::string_view what);

}  // namespace colonnade::data_parallel
