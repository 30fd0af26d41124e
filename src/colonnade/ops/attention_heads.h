// What the ways to compute attention share: how heads are folded for LibTorch's kernels, and sinks.
#pragma once

#include <ATen/ATen.h>

#include "colonnade/ops/attention.h"

namespace colonnade::ops {

/// Of q [b, n, s, d] and k [b, g, t, d].
struct HeadSizes {
  explicit HeadSizes(const at::Tensor& q, const at::Tensor& k)
      : b(q.size(0)), n(q.size(1)), s(q.size(2)), d(q.size(3)), g(k.size(1)), t(k.size(2)), repeat(n / g) {}
  std::int64_t b, n, s, d, g, t, repeat;
};

/// Heads as the kernel sees them: [1, b n, s, d] when no key is shared, otherwise [b g, n/g, s, d] with
/// keys of stride 0 over the heads. Its output has the strides of the query.
struct FoldedHeads {
  explicit FoldedHeads(const HeadSizes& sizes, const at::Tensor& mask)
      : z(sizes), flat(z.repeat == 1 && (!mask.defined() || mask.size(0) == 1)) {}
  HeadSizes z;
  bool flat;

  [[nodiscard]] at::Tensor query(const at::Tensor& x_bnsd) const {
    return flat ? x_bnsd.reshape({1, z.b * z.n, z.s, z.d}) : x_bnsd.reshape({z.b * z.g, z.repeat, z.s, z.d});
  }
  [[nodiscard]] at::Tensor key(const at::Tensor& x_bgtd) const {
    if (flat) return x_bgtd.reshape({1, z.b * z.g, z.t, z.d});
    return x_bgtd.reshape({z.b * z.g, 1, z.t, z.d}).expand({z.b * z.g, z.repeat, z.t, z.d});
  }
  [[nodiscard]] at::Tensor mask(const at::Tensor& mask) const {
    if (!mask.defined() || mask.size(0) == 1) return mask;
    return mask.expand({z.b, z.g, z.s, z.t}).reshape({z.b * z.g, 1, z.s, z.t});
  }
  /// The kernel's output (or the gradient of its query) to [s, b, n d] and back.
  [[nodiscard]] at::Tensor joined(const at::Tensor& x) const {
    if (flat) return x.transpose(1, 2).reshape({z.s, z.b, z.n * z.d});
    return x.view({z.b, z.g, z.repeat, z.s, z.d}).permute({3, 0, 1, 2, 4}).reshape({z.s, z.b, z.n * z.d});
  }
  [[nodiscard]] at::Tensor apart(const at::Tensor& x_sbh) const {
    if (flat) return x_sbh.view({z.s, z.b * z.n, z.d}).transpose(0, 1).unsqueeze(0);
    return x_sbh.view({z.s, z.b, z.g, z.repeat, z.d})
        .permute({1, 2, 3, 0, 4})
        .reshape({z.b * z.g, z.repeat, z.s, z.d});
  }
  /// One number per head as the log-sum-exp has them, and back.
  [[nodiscard]] at::Tensor per_head(const at::Tensor& x_n) const {
    if (flat) return x_n.expand({z.b, z.n}).reshape({1, z.b * z.n, 1});
    return x_n.view({1, z.g, z.repeat}).expand({z.b, z.g, z.repeat}).reshape({z.b * z.g, z.repeat, 1});
  }
  [[nodiscard]] at::Tensor sum_per_head(const at::Tensor& x) const {
    return x.sum(-1).view({z.b, z.n}).sum(0);
  }
  [[nodiscard]] at::Tensor query_grad(const at::Tensor& x) const { return x.reshape({z.b, z.n, z.s, z.d}); }
  [[nodiscard]] at::Tensor key_grad(const at::Tensor& x) const {
    return (flat ? x : x.sum(1)).reshape({z.b, z.g, z.t, z.d});
  }
};

/// Lets each head's sink take its part of the sums: y and lse are as if it were a key without a value.
void add_sinks(const at::Tensor& y, const at::Tensor& lse, const at::Tensor& sinks);

/// The gradient of these heads' sinks; that of the others is zero here.
void accumulate_sinks(const Sinks& sinks, const at::Tensor& grad);

}  // namespace colonnade::ops
