// See zigzag_order.h.
#include "colonnade/layers/context_parallel/zigzag_order.h"

#include <ATen/ATen.h>

namespace colonnade::layers {
namespace {

/// Calls body(chunks of `parts`, the same chunks of `full`): all ranks' first chunks at once, then each
/// rank's second.
template <typename Body>
void for_each_chunk_pair(const at::Tensor& parts, const at::Tensor& full, const Body& body) {
  const std::int64_t k = parts.size(0), c = parts.size(2) / 2;
  const at::Tensor by_chunk = parts.unflatten(2, {2, c});        // [k, l, 2, c, x]
  const at::Tensor in_sequence = full.unflatten(1, {2 * k, c});  // [l, 2k, c, x]
  body(by_chunk.select(2, 0).transpose(0, 1), in_sequence.narrow(1, 0, k));
  for (std::int64_t rank = 0; rank < k; ++rank)
    body(by_chunk.select(0, rank).select(1, 1), in_sequence.select(1, 2 * k - 1 - rank));
}

}  // namespace

void to_sequence_order(const at::Tensor& parts, const at::Tensor& full) {
  for_each_chunk_pair(parts, full, [](const at::Tensor& from, const at::Tensor& to) { to.copy_(from); });
}

at::Tensor sequence_order(const at::Tensor& parts) {
  at::Tensor full = at::empty({parts.size(1), parts.size(0) * parts.size(2), parts.size(3)}, parts.options());
  to_sequence_order(parts, full);
  return full;
}

void to_rank_order(const at::Tensor& full, const at::Tensor& parts) {
  for_each_chunk_pair(parts, full, [](const at::Tensor& to, const at::Tensor& from) { to.copy_(from); });
}

at::Tensor rank_order(const at::Tensor& full, std::int64_t ranks) {
  at::Tensor parts = at::empty({ranks, full.size(0), full.size(1) / ranks, full.size(2)}, full.options());
  to_rank_order(full, parts);
  return parts;
}

}  // namespace colonnade::layers
