// Attention over LibTorch's kernels. On the CPU the flash kernels are called directly, with batch and
// heads folded so that grouped keys are never repeated.
#include "colonnade/ops/attention.h"

#include <limits>

#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

struct Sizes {
  explicit Sizes(const Tensor& q, const Tensor& k)
      : b(q.size(0)), n(q.size(1)), s(q.size(2)), d(q.size(3)), g(k.size(1)), t(k.size(2)), repeat(n / g) {}
  std::int64_t b, n, s, d, g, t, repeat;
};

/// The masks as one tensor that is added to the scores, 0 or -inf, [b or 1, 1, s, t].
Tensor added_mask(const Tensor& q, const Sizes& z, const AttentionArgs& args) {
  const std::int64_t batch = args.mask.defined() ? args.mask.size(0) : 1;
  const Tensor added = at::zeros({batch, 1, z.s, z.t}, q.options());
  if (q.is_meta()) return added;
  Tensor hidden = args.mask.defined() ? args.mask : at::zeros({1, 1, z.s, z.t}, q.options().dtype(at::kBool));
  if (args.causal) {
    const Tensor query = at::arange(z.t - z.s, z.t, q.options().dtype(at::kLong)).unsqueeze(1);
    const Tensor key = at::arange(z.t, q.options().dtype(at::kLong)).unsqueeze(0);
    hidden = hidden.logical_or(key > query);
    if (args.window > 0) hidden = hidden.logical_or(key < query - args.window);
  }
  return added.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

struct FlashArgs {
  double scale;
  bool causal;
};

/// Heads as the kernel sees them: [1, b n, s, d] when no key is shared, otherwise [b g, n/g, s, d] with
/// keys of stride 0 over the heads. Its output has the strides of the query.
struct Folded {
  explicit Folded(const Sizes& sizes, const Tensor& mask)
      : z(sizes), flat(z.repeat == 1 && (!mask.defined() || mask.size(0) == 1)) {}
  Sizes z;
  bool flat;

  [[nodiscard]] Tensor query(const Tensor& x_bnsd) const {
    return flat ? x_bnsd.reshape({1, z.b * z.n, z.s, z.d}) : x_bnsd.reshape({z.b * z.g, z.repeat, z.s, z.d});
  }
  [[nodiscard]] Tensor key(const Tensor& x_bgtd) const {
    if (flat) return x_bgtd.reshape({1, z.b * z.g, z.t, z.d});
    return x_bgtd.reshape({z.b * z.g, 1, z.t, z.d}).expand({z.b * z.g, z.repeat, z.t, z.d});
  }
  [[nodiscard]] Tensor mask(const Tensor& mask) const {
    if (!mask.defined() || mask.size(0) == 1) return mask;
    return mask.expand({z.b, z.g, z.s, z.t}).reshape({z.b * z.g, 1, z.s, z.t});
  }
  /// The kernel's output (or the gradient of its query) to [s, b, n d] and back.
  [[nodiscard]] Tensor joined(const Tensor& x) const {
    if (flat) return x.transpose(1, 2).reshape({z.s, z.b, z.n * z.d});
    return x.view({z.b, z.g, z.repeat, z.s, z.d}).permute({3, 0, 1, 2, 4}).reshape({z.s, z.b, z.n * z.d});
  }
  [[nodiscard]] Tensor apart(const Tensor& x_sbh) const {
    if (flat) return x_sbh.view({z.s, z.b * z.n, z.d}).transpose(0, 1).unsqueeze(0);
    return x_sbh.view({z.s, z.b, z.g, z.repeat, z.d})
        .permute({1, 2, 3, 0, 4})
        .reshape({z.b * z.g, z.repeat, z.s, z.d});
  }
  [[nodiscard]] Tensor query_grad(const Tensor& x) const { return x.reshape({z.b, z.n, z.s, z.d}); }
  [[nodiscard]] Tensor key_grad(const Tensor& x) const {
    return (flat ? x : x.sum(1)).reshape({z.b, z.g, z.t, z.d});
  }
};

struct FlashRule : torch::autograd::Function<FlashRule> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const MaybeTensor& mask_given, const FlashArgs& args) {
    const Tensor mask = mask_given.value_or(Tensor());
    const Folded fold(Sizes(q, k), mask);
    Tensor y;
    Tensor lse;
    const Tensor query = fold.query(q);
    if (q.is_meta()) {
      y = at::empty_like(query);
      lse = at::empty({query.size(0), query.size(2), query.size(1)},
                      q.options().dtype(acc_type(q.scalar_type())));
    } else {
      const Tensor folded_mask = fold.mask(mask);
      std::tie(y, lse) = at::_scaled_dot_product_flash_attention_for_cpu(
          query, fold.key(k), fold.key(v), 0.0, args.causal,
          folded_mask.defined() ? std::optional(folded_mask) : std::nullopt, args.scale);
    }
    ctx->save_for_backward({q, k, v, mask, y, lse});
    keep(ctx, args);
    return fold.joined(y);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& q = saved[0];
    const Tensor& k = saved[1];
    const Tensor& v = saved[2];
    const auto args = kept<FlashArgs>(ctx);
    if (q.is_meta()) return {at::empty_like(q), at::empty_like(k), at::empty_like(v), Tensor(), Tensor()};
    const Folded fold(Sizes(q, k), saved[3]);
    const Tensor mask = fold.mask(saved[3]);
    const auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        fold.apart(grads[0].contiguous()), fold.query(q), fold.key(k), fold.key(v), saved[4], saved[5], 0.0,
        args.causal, mask.defined() ? std::optional(mask) : std::nullopt, args.scale);
    return {fold.query_grad(grad_q), fold.key_grad(grad_k), fold.key_grad(grad_v), Tensor(), Tensor()};
  }
};

/// All scores in memory, because LibTorch's kernels know no dropout by position.
Tensor attention_with_dropout(const Qkv& qkv, const Tensor& mask, const Sizes& z, const AttentionArgs& args) {
  const Tensor q = qkv.q.reshape({z.b, z.g, z.repeat * z.s, z.d});
  Tensor scores = at::matmul(q, qkv.k.transpose(-2, -1)).view({z.b, z.n, z.s, z.t}) * args.scale;
  if (mask.defined()) scores = scores + mask;
  const Tensor kept = attention_dropout(scores.softmax(-1), args.dropout, args.key);
  const Tensor y = at::matmul(kept.view({z.b, z.g, z.repeat * z.s, z.t}), qkv.v);
  return y.view({z.b, z.n, z.s, z.d}).permute({2, 0, 1, 3}).reshape({z.s, z.b, z.n * z.d});
}

void check(const Qkv& qkv, const AttentionArgs& args) {
  COL_CHECK(qkv.q.dim() == 4 && qkv.k.dim() == 4 && qkv.v.sizes() == qkv.k.sizes() &&
                qkv.k.size(0) == qkv.q.size(0) && qkv.k.size(3) == qkv.q.size(3) && qkv.k.size(1) > 0 &&
                qkv.q.size(1) % qkv.k.size(1) == 0 && (!args.causal || qkv.k.size(2) >= qkv.q.size(2)),
            "attention: q must be [b, n, s, d] and k, v [b, g, t, d] with g dividing n and, when causal, "
            "t >= s; got {}, {}, {}",
            c10::str(qkv.q.sizes()), c10::str(qkv.k.sizes()), c10::str(qkv.v.sizes()));
  COL_CHECK(args.window == 0 || args.causal, "attention: a window needs causal attention; got window {}",
            args.window);
  const Tensor& mask = args.mask;
  COL_CHECK(!mask.defined() || (mask.scalar_type() == at::kBool && mask.dim() == 4 &&
                                (mask.size(0) == 1 || mask.size(0) == qkv.q.size(0)) && mask.size(1) == 1 &&
                                mask.size(2) == qkv.q.size(2) && mask.size(3) == qkv.k.size(2)),
            "attention: the mask must be bool [b or 1, 1, s, t]; got {}", c10::str(mask.sizes()));
}

}  // namespace

Tensor attention(const Qkv& qkv, const AttentionArgs& args) {
  check(qkv, args);
  const Sizes z(qkv.q, qkv.k);
  const bool windowed = args.window > 0 && args.window < z.t - 1;
  const bool triangle = args.causal && z.s == z.t && z.s > 1;  // what the kernels know as causal
  const bool slanted = args.causal && z.s != z.t && z.s > 1;
  const bool masked = windowed || slanted || args.mask.defined();
  if (args.dropout > 0) {
    const Tensor mask = masked || triangle ? added_mask(qkv.q, z, args) : Tensor();
    return attention_with_dropout(qkv, mask, z, args);
  }
  const Tensor mask = masked ? added_mask(qkv.q, z, args) : Tensor();
  if (!qkv.q.is_cuda())
    return FlashRule::apply(qkv.q, qkv.k, qkv.v, maybe(mask), FlashArgs{args.scale, triangle});
  const Tensor y = at::scaled_dot_product_attention(
      qkv.q, qkv.k, qkv.v, mask.defined() ? std::optional(mask) : std::nullopt, 0.0, triangle && !masked,
      args.scale, /*enable_gqa=*/z.repeat > 1);
  return y.permute({2, 0, 1, 3}).reshape({z.s, z.b, z.n * z.d});
}

}  // namespace colonnade::ops
