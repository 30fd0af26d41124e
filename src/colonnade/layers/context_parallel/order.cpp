// See order.h.
#include "colonnade/layers/context_parallel/order.h"

#include <ATen/ATen.h>

namespace colonnade::layers {
namespace {

/// body(some chunks of `parts`, the same ones of `whole`), of equal shape: first chunks of all ranks, then
/// the second of each.
template <typename Body>
void each_place(const at::Tensor& parts, const at::Tensor& whole, const Body& body) {
  const std::int64_t k = parts.size(0), c = parts.size(2) / 2;
  const at::Tensor held = parts.unflatten(2, {2, c});        // [k, l, 2, c, x]
  const at::Tensor placed = whole.unflatten(1, {2 * k, c});  // [l, 2k, c, x]
  body(held.select(2, 0).transpose(0, 1), placed.narrow(1, 0, k));
  for (std::int64_t rank = 0; rank < k; ++rank)
    body(held.select(0, rank).select(1, 1), placed.select(1, 2 * k - 1 - rank));
}

}  // namespace

void to_sequence_order(const at::Tensor& parts, const at::Tensor& whole) {
  each_place(parts, whole, [](const at::Tensor& from, const at::Tensor& to) { to.copy_(from); });
}

at::Tensor sequence_order(const at::Tensor& parts) {
  at::Tensor whole =
      at::empty({parts.size(1), parts.size(0) * parts.size(2), parts.size(3)}, parts.options());
  to_sequence_order(parts, whole);
  return whole;
}

void to_rank_order(const at::Tensor& whole, const at::Tensor& parts) {
  each_place(parts, whole, [](const at::Tensor& to, const at::Tensor& from) { to.copy_(from); });
}

at::Tensor rank_order(const at::Tensor& whole, std::int64_t ranks) {
  at::Tensor parts = at::empty({ranks, whole.size(0), whole.size(1) / ranks, whole.size(2)}, whole.options());
  to_rank_order(whole, parts);
  return parts;
}

}  // namespace colonnade::layers
