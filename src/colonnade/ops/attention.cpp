// Attention over LibTorch's kernels. On the CPU the flash kernels are called directly, with batch and
// heads folded so that grouped keys are never repeated.
#include "colonnade/ops/attention.h"

#include <algorithm>
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

/// x [..., d] with zeros up to `wide` channels.
Tensor filled(const Tensor& x, std::int64_t wide) {
  if (x.size(-1) == wide) return x;
  auto shape = x.sizes().vec();
  shape.back() = wide;
  const Tensor y = at::zeros(shape, x.options());
  y.narrow(-1, 0, x.size(-1)).copy_(x);
  return y;
}
/// [s, b, n d] with heads of `to` channels: cut, or filled up.
Tensor with_heads_of(const Tensor& x_sbh, std::int64_t heads, std::int64_t to) {
  const std::int64_t d = x_sbh.size(-1) / heads;
  if (d == to) return x_sbh;
  const Tensor apart = x_sbh.unflatten(-1, {heads, d});
  return (to < d ? apart.narrow(-1, 0, to) : filled(apart, to)).flatten(-2);
}

struct FlashArgs {
  double scale;
  bool causal;
  Sinks sinks;
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
  /// One number per head as the log-sum-exp has them, and back.
  [[nodiscard]] Tensor per_head(const Tensor& x_n) const {
    if (flat) return x_n.expand({z.b, z.n}).reshape({1, z.b * z.n, 1});
    return x_n.view({1, z.g, z.repeat}).expand({z.b, z.g, z.repeat}).reshape({z.b * z.g, z.repeat, 1});
  }
  [[nodiscard]] Tensor sum_per_head(const Tensor& x) const { return x.sum(-1).view({z.b, z.n}).sum(0); }
  [[nodiscard]] Tensor query_grad(const Tensor& x) const { return x.reshape({z.b, z.n, z.s, z.d}); }
  [[nodiscard]] Tensor key_grad(const Tensor& x) const {
    return (flat ? x : x.sum(1)).reshape({z.b, z.g, z.t, z.d});
  }
};

/// Lets each head's sink take its part of the sums: y and lse are as if it were a key without a value.
void add_sinks(const Tensor& y, const Tensor& lse, const Tensor& sinks) {
  const Tensor alone = lse.clone();
  lse.copy_(at::logaddexp(alone, sinks));
  y.mul_((alone - lse).exp_().unsqueeze(-1));
}

/// The gradient of these heads' sinks; that of the others is zero here.
void accumulate_sinks(const Sinks& sinks, const Tensor& grad) {
  tensor::Parameter& parameter = *sinks.learned;
  if (grad.numel() == parameter.value.numel()) return parameter.accumulate(grad);
  const Tensor all = at::zeros(parameter.value.sizes(), grad.options());
  all.narrow(0, sinks.first, grad.numel()).copy_(grad);
  parameter.accumulate(all);
}

struct FlashRule : torch::autograd::Function<FlashRule> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const MaybeTensor& mask_given, const MaybeTensor& sinks, const FlashArgs& args) {
    const Tensor mask = mask_given.value_or(Tensor());
    const std::int64_t wide = std::max(q.size(3), v.size(3));
    const Tensor key = filled(k, wide);
    const Folded fold(Sizes(filled(q, wide), key), mask);
    Tensor y;
    Tensor lse;
    const Tensor query = fold.query(filled(q, wide));
    if (q.is_meta()) {
      y = at::empty_like(query);
      lse = at::empty({query.size(0), query.size(2), query.size(1)},
                      q.options().dtype(acc_type(q.scalar_type())));
    } else {
      const Tensor folded_mask = fold.mask(mask);
      std::tie(y, lse) = at::_scaled_dot_product_flash_attention_for_cpu(
          query, fold.key(key), fold.key(filled(v, wide)), 0.0, args.causal,
          folded_mask.defined() ? std::optional(folded_mask) : std::nullopt, args.scale);
      if (sinks)
        add_sinks(y, lse, fold.per_head(sinks->narrow(0, args.sinks.first, q.size(1)).to(lse.scalar_type())));
    }
    keep(ctx, args);
    const Tensor result = with_heads_of(fold.joined(y), q.size(1), v.size(3));
    ctx->save_for_backward({q, k, v, mask, v.size(3) == wide ? y : result, lse});
    return result;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& q = saved[0];
    const Tensor& k = saved[1];
    const Tensor& v = saved[2];
    const auto args = kept<FlashArgs>(ctx);
    if (q.is_meta()) {
      if (tensor::Parameter* sinks = args.sinks.learned) sinks->accumulate(at::empty_like(sinks->value));
      return {at::empty_like(q), at::empty_like(k), at::empty_like(v), Tensor(), Tensor(), Tensor()};
    }
    const std::int64_t heads = q.size(1), d = q.size(3), w = v.size(3), wide = std::max(d, w);
    const Tensor query = filled(q, wide), key = filled(k, wide);
    const Folded fold(Sizes(query, key), saved[3]);
    const Tensor mask = fold.mask(saved[3]);
    const auto as_written = [&](const Tensor& x) { return fold.apart(with_heads_of(x, heads, wide)); };
    const Tensor grad_y = as_written(grads[0].contiguous());
    const Tensor y = w == wide ? saved[4] : as_written(saved[4]);
    if (args.sinks.learned != nullptr) add_sink_gradient(fold, grad_y, y, saved[5], args.sinks);
    const auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        grad_y, fold.query(query), fold.key(key), fold.key(filled(v, wide)), y, saved[5], 0.0, args.causal,
        mask.defined() ? std::optional(mask) : std::nullopt, args.scale);
    return {fold.query_grad(grad_q).narrow(-1, 0, d),
            fold.key_grad(grad_k).narrow(-1, 0, d),
            fold.key_grad(grad_v).narrow(-1, 0, w),
            Tensor(),
            Tensor(),
            Tensor()};
  }

  static void add_sink_gradient(const Folded& fold, const Tensor& grad_y, const Tensor& y, const Tensor& lse,
                                const Sinks& sinks) {
    const Tensor own = sinks.learned->value.detach().narrow(0, sinks.first, fold.z.n);
    const Tensor share = (fold.per_head(own.to(lse.scalar_type())) - lse).exp_();
    const Tensor dot = (grad_y.to(lse.scalar_type()) * y).sum(-1);
    accumulate_sinks(sinks, fold.sum_per_head(dot * share).neg_());
  }
};

/// A parameter's value in another type; its gradient goes to main_grad.
struct ValueRule : torch::autograd::Function<ValueRule> {
  static Tensor forward(AutogradContext* ctx, const Tensor& value, tensor::Parameter* parameter) {
    keep(ctx, parameter);
    return value.clone();
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    kept<tensor::Parameter*>(ctx)->accumulate(grads[0]);
    return {Tensor(), Tensor()};
  }
};

/// The sink of each head, or 0 of all: [n].
Tensor sink_logits(const Sizes& z, const Tensor& q, const AttentionArgs& args) {
  tensor::Parameter* learned = args.sinks.learned;
  if (learned == nullptr) return at::zeros({z.n}, q.options());
  return ValueRule::apply(learned->value, learned).narrow(0, args.sinks.first, z.n);
}

/// All scores in memory, because LibTorch's kernels know neither dropout by position nor soft caps, and those
/// of CUDA no sinks. A sink is a last key whose value is zero.
Tensor attention_with_scores(const Qkv& qkv, const Tensor& mask, const Sizes& z, const AttentionArgs& args,
                             bool sinks) {
  const Tensor q = qkv.q.reshape({z.b, z.g, z.repeat * z.s, z.d});
  const double scale = args.softcap > 0 ? args.scale / args.softcap : args.scale;
  Tensor scores = at::matmul(q, qkv.k.transpose(-2, -1)).view({z.b, z.n, z.s, z.t}) * scale;
  if (args.softcap > 0) {
    scores.tanh_();
    scores = scores * args.softcap;
  }
  if (mask.defined()) scores = scores + mask;
  Tensor v = qkv.v;
  const std::int64_t w = v.size(3);
  if (sinks) {
    const Tensor logits = sink_logits(z, qkv.q, args).view({1, z.n, 1, 1}).expand({z.b, z.n, z.s, 1});
    scores = at::cat({scores, logits}, -1);
    v = at::cat({v, at::zeros({z.b, z.g, 1, w}, v.options())}, -2);
  }
  Tensor shares = scores.softmax(-1);
  if (args.dropout > 0) shares = attention_dropout(shares, args.dropout, args.key);
  const Tensor y = at::matmul(shares.view({z.b, z.g, z.repeat * z.s, v.size(-2)}), v);
  return y.view({z.b, z.n, z.s, w}).permute({2, 0, 1, 3}).reshape({z.s, z.b, z.n * w});
}

/// 0, and where a key is hidden so little that it counts for nothing beside any score; not -inf, so that a
/// query without a key gets numbers.
Tensor added_block_mask(const Tensor& q, const Tensor& hidden) {
  if (!hidden.defined()) return {};
  const Tensor added = at::zeros(hidden.sizes(), q.options());
  return q.is_meta() ? added : added.masked_fill_(hidden, q.scalar_type() == at::kHalf ? -65504.0 : -1e30);
}

void check_block(const Qkv& qkv) {
  COL_CHECK(
      !qkv.q.is_cuda(),
      "attention_block: LibTorch's kernels that keep the sums are used on the CPU only; got tensors on {}",
      c10::str(qkv.q.device()));
}

void check(const Qkv& qkv, const AttentionArgs& args) {
  COL_CHECK(
      qkv.q.dim() == 4 && qkv.k.dim() == 4 && qkv.v.dim() == 4 &&
          qkv.v.sizes().slice(0, 3) == qkv.k.sizes().slice(0, 3) && qkv.k.size(0) == qkv.q.size(0) &&
          qkv.k.size(3) == qkv.q.size(3) && qkv.k.size(1) > 0 && qkv.q.size(1) % qkv.k.size(1) == 0 &&
          (!args.causal || qkv.k.size(2) >= qkv.q.size(2)),
      "attention: q must be [b, n, s, d], k [b, g, t, d] and v [b, g, t, w] with g dividing n and, when causal, "
      "t >= s; got {}, {}, {}",
      c10::str(qkv.q.sizes()), c10::str(qkv.k.sizes()), c10::str(qkv.v.sizes()));
  COL_CHECK(args.window == 0 || args.causal, "attention: a window needs causal attention; got window {}",
            args.window);
  const Sinks& sinks = args.sinks;
  COL_CHECK(!sinks.any() || args.dropout == 0, "attention: sinks need dropout 0; got {}", args.dropout);
  COL_CHECK(sinks.learned == nullptr || sinks.learned->value.numel() >= sinks.first + qkv.q.size(1),
            "attention: there must be a sink for each of {} heads from {} on; got {}", qkv.q.size(1),
            sinks.first, c10::str(sinks.learned->value.sizes()));
  const Tensor& mask = args.mask;
  COL_CHECK(!mask.defined() || (mask.scalar_type() == at::kBool && mask.dim() == 4 &&
                                (mask.size(0) == 1 || mask.size(0) == qkv.q.size(0)) && mask.size(1) == 1 &&
                                mask.size(2) == qkv.q.size(2) && mask.size(3) == qkv.k.size(2)),
            "attention: the mask must be bool [b or 1, 1, s, t]; got {}", c10::str(mask.sizes()));
}

}  // namespace

BlockOutput attention_block(const Qkv& qkv, double scale, const BlockMask& given) {
  check_block(qkv);
  const Sizes z(qkv.q, qkv.k);
  if (qkv.q.is_meta())
    return {at::empty({z.b, z.n, z.s, z.d}, qkv.q.options()),
            at::empty({z.b, z.n, z.s}, qkv.q.options().dtype(acc_type(qkv.q.scalar_type())))};
  const Tensor mask = added_block_mask(qkv.q, given.hidden);
  const Folded fold(z, mask);
  const auto [y, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      fold.query(qkv.q), fold.key(qkv.k), fold.key(qkv.v), 0.0, given.causal, maybe(fold.mask(mask)), scale);
  return {y.reshape({z.b, z.n, z.s, z.d}), lse.reshape({z.b, z.n, z.s})};
}

void join_block(const BlockOutput& into, const BlockOutput& more) {
  if (into.y.is_meta()) return;
  const Tensor lse = at::logaddexp(into.lse, more.lse);
  into.y.mul_((into.lse - lse).exp_().unsqueeze(-1)).add_(more.y * (more.lse - lse).exp_().unsqueeze(-1));
  into.lse.copy_(lse);
}

void join_sinks(const BlockOutput& into, const Sinks& sinks) {
  if (into.y.is_meta() || !sinks.any()) return;
  const std::int64_t n = into.lse.size(1);
  const Tensor logits =
      sinks.learned != nullptr
          ? sinks.learned->value.detach().narrow(0, sinks.first, n).to(into.lse.scalar_type())
          : at::zeros({n}, into.lse.options());
  add_sinks(into.y, into.lse, logits.view({1, n, 1}));
}

void join_sinks_backward(const Tensor& grad_y, const BlockOutput& whole, const Sinks& sinks) {
  if (sinks.learned == nullptr) return;
  tensor::Parameter& parameter = *sinks.learned;
  if (grad_y.is_meta()) return parameter.accumulate(at::empty_like(parameter.value));
  const std::int64_t n = whole.lse.size(1);
  const Tensor own = parameter.value.detach().narrow(0, sinks.first, n).to(whole.lse.scalar_type());
  const Tensor share = (own.view({1, n, 1}) - whole.lse).exp_();
  const Tensor dot = (grad_y.to(whole.lse.scalar_type()) * whole.y).sum(-1);
  accumulate_sinks(sinks, (dot * share).sum(at::IntArrayRef{0, 2}).neg_());
}

Qkv attention_block_backward(const Tensor& grad_y, const Qkv& qkv, const BlockOutput& whole, double scale,
                             const BlockMask& given) {
  check_block(qkv);
  if (qkv.q.is_meta()) return {at::empty_like(qkv.q), at::empty_like(qkv.k), at::empty_like(qkv.v)};
  const Sizes z(qkv.q, qkv.k);
  const Tensor mask = added_block_mask(qkv.q, given.hidden);
  const Folded fold(z, mask);
  const Tensor query = fold.query(qkv.q);
  const auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      fold.query(grad_y), query, fold.key(qkv.k), fold.key(qkv.v), fold.query(whole.y),
      whole.lse.reshape(query.sizes().slice(0, 3)), 0.0, given.causal, maybe(fold.mask(mask)), scale);
  return {fold.query_grad(grad_q), fold.key_grad(grad_k), fold.key_grad(grad_v)};
}

Tensor attention(const Qkv& qkv, const AttentionArgs& args) {
  check(qkv, args);
  const Sizes z(qkv.q, qkv.k);
  const bool windowed = args.window > 0 && args.window < z.t - 1;
  const bool triangle = args.causal && z.s == z.t && z.s > 1;  // what the kernels know as causal
  const bool slanted = args.causal && z.s != z.t && z.s > 1;
  const bool masked = windowed || slanted || args.mask.defined();
  const bool sinks = args.sinks.any();
  if (args.dropout > 0 || args.softcap > 0 || (sinks && qkv.q.is_cuda())) {
    const Tensor mask = masked || triangle ? added_mask(qkv.q, z, args) : Tensor();
    return attention_with_scores(qkv, mask, z, args, sinks);
  }
  const Tensor mask = masked ? added_mask(qkv.q, z, args) : Tensor();
  if (!qkv.q.is_cuda()) {
    const Tensor logits = args.sinks.learned != nullptr ? args.sinks.learned->value
                          : sinks                       ? at::zeros({z.n}, qkv.q.options())
                                                        : Tensor();
    return FlashRule::apply(qkv.q, qkv.k, qkv.v, maybe(mask), maybe(logits),
                            FlashArgs{args.scale, triangle, args.sinks});
  }
  const Tensor y = at::scaled_dot_product_attention(
      qkv.q, qkv.k, qkv.v, mask.defined() ? std::optional(mask) : std::nullopt, 0.0, triangle && !masked,
      args.scale, /*enable_gqa=*/z.repeat > 1);
  return y.permute({2, 0, 1, 3}).reshape({z.s, z.b, z.n * qkv.v.size(3)});
}

}  // namespace colonnade::ops
