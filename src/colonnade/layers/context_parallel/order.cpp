// See order.h.
#include "colonnade/layers/context_parallel/order.h"

#include <ATen/ATen.h>

namespace colonnade::layers {

at::Tensor sequence_order(const at::Tensor& parts) {
  const std::int64_t k = parts.size(0), l = parts.size(1), c = parts.size(2) / 2, x = parts.size(3);
  if (parts.is_meta()) return at::empty({l, 2 * k * c, x}, parts.options());  // has no flip
  const at::Tensor chunks = parts.reshape({k, l, 2, c, x}).transpose(0, 1);   // [l, k, 2, c, x]
  return at::cat({chunks.select(2, 0), chunks.select(2, 1).flip(1)}, 1).view({l, 2 * k * c, x});
}

at::Tensor rank_order(const at::Tensor& whole, std::int64_t ranks) {
  const std::int64_t l = whole.size(0), c = whole.size(1) / (2 * ranks), x = whole.size(2);
  if (whole.is_meta()) return at::empty({ranks, l, 2 * c, x}, whole.options());
  const at::Tensor chunks = whole.reshape({l, 2 * ranks, c, x}).transpose(0, 1);  // [2k, l, c, x]
  return at::stack({chunks.narrow(0, 0, ranks), chunks.narrow(0, ranks, ranks).flip(0)}, 2)
      .view({ranks, l, 2 * c, x});
}

}  // namespace colonnade::layers
