// See capacity.h.
#include "colonnade/ops/capacity.h"

#include <ATen/ATen.h>

#include "colonnade/base/error.h"

namespace colonnade::ops {

at::Tensor apply_capacity(const at::Tensor& experts, const at::Tensor& weights, std::int64_t num_experts,
                          std::int64_t capacity, DropPolicy keep) {
  COL_CHECK(experts.dim() == 2 && experts.sizes() == weights.sizes() && capacity >= 1,
            "experts and weights must be [n, k] and the capacity at least 1; got {} {} and {}",
            c10::str(experts.sizes()), c10::str(weights.sizes()), capacity);
  if (experts.is_meta()) return experts;
  const at::Tensor flat = experts.reshape(-1);
  at::Tensor order;  // pairs sorted by expert, then by priority
  if (keep == DropPolicy::kProbs) {
    const at::Tensor falling = std::get<1>(weights.detach().reshape(-1).sort(/*stable=*/true, 0, true));
    order =
        falling.index_select(0, std::get<1>(flat.index_select(0, falling).sort(/*stable=*/true, 0, false)));
  } else {
    order = std::get<1>(flat.sort(/*stable=*/true, 0, false));
  }
  const at::Tensor sorted = flat.index_select(0, order);
  const at::Tensor begins = at::searchsorted(sorted, at::arange(num_experts, flat.options()));
  const at::Tensor within = at::arange(flat.numel(), flat.options()) - begins.index_select(0, sorted);
  const at::Tensor kept = sorted.masked_fill(within.ge(capacity), num_experts);
  return at::empty_like(flat).scatter_(0, order, kept).view(experts.sizes());
}

}  // namespace colonnade::ops
