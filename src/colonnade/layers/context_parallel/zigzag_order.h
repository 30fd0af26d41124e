// Reordering between rank order and sequence order: rank r of k holds chunks r and 2k-1-r of 2k
// (layout/zigzag_chunks.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace colonnade::layers {

/// parts [k, l, 2c, x] in rank order -> full [l, 2kc, x] in sequence order. Copies in place, no temporaries.
void to_sequence_order(const at::Tensor& parts, const at::Tensor& full);
at::Tensor sequence_order(const at::Tensor& parts);

/// The inverse: [l, 2kc, x] -> [k, l, 2c, x].
void to_rank_order(const at::Tensor& full, const at::Tensor& parts);
at::Tensor rank_order(const at::Tensor& full, std::int64_t ranks);

}  // namespace colonnade::layers
