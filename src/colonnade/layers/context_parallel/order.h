// The order of tokens on context ranks and the order of the sequence: rank r of k holds of 2k chunks r and
// 2k-1-r (layout/context_parallel.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace colonnade::layers {

/// parts [k, l, 2c, x], the ranks' one behind the other -> whole [l, 2kc, x] in the order of the sequence,
/// both given. No memory but theirs.
void to_sequence_order(const at::Tensor& parts, const at::Tensor& whole);
at::Tensor sequence_order(const at::Tensor& parts);

/// The inverse: [l, 2kc, x] -> [k, l, 2c, x].
void to_rank_order(const at::Tensor& whole, const at::Tensor& parts);
at::Tensor rank_order(const at::Tensor& whole, std::int64_t ranks);

}  // namespace colonnade::layers
