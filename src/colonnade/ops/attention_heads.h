// Shared by the attention implementations: folding of heads for LibTorch's kernels, and sinks.
#pragma once

#include <ATen/ATen.h>

#include "colonnade/ops/attention.h"

namespace colonnade::ops {

/// Sizes of q [b, n, s, d] and k [b, g, t, d]; repeat = n / g.
struct HeadSizes {
  explicit HeadSizes(const at::Tensor& q, const at::Tensor& k)
      : b(q.size(0)), n(q.size(1)), s(q.size(2)), d(q.size(3)), g(k.size(1)), t(k.size(2)), repeat(n / g) {}
  std::int64_t b, n, s, d, g, t, repeat;
};

/// Heads in kernel layout: [1, b n, s, d] without grouped keys, otherwise [b g, n/g, s, d] with key stride 0
/// over the heads of a group. The kernel's output has the strides of the query.
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
  /// Kernel output (or query gradient) to [s, b, n d], and back.
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
  /// One value per head in the layout of the log-sum-exp, and its reduction back to heads.
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

/// x [..., d] zero-padded to `head_dim` channels; x itself if it has as many.
at::Tensor zero_padded(const at::Tensor& x, std::int64_t head_dim);

/// attention() with documents (attention_documents.cpp).
at::Tensor attention_within_documents(const Qkv& qkv, const AttentionArgs& args);

/// Applies each head's sink to y and lse, as an extra key with value zero.
void add_sinks(const at::Tensor& y, const at::Tensor& lse, const at::Tensor& sinks);

/// Accumulates the gradient of these heads' sinks; zero for other heads.
void accumulate_sinks(const Sinks& sinks, const at::Tensor& grad);

}  // namespace colonnade::ops
