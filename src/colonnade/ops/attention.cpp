// Attention through LibTorch's kernels. CPU flash kernels are called directly, with batch and heads folded so
// that grouped keys are never repeated.
#include "colonnade/ops/attention.h"

#include <algorithm>
#include <limits>

#include "colonnade/ops/attention_heads.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

/// All masks as one additive tensor of 0 or -inf, [b or 1, 1, s, t].
Tensor additive_mask(const Tensor& q, const HeadSizes& z, const AttentionArgs& args) {
  const std::int64_t batch = args.mask.defined() ? args.mask.size(0) : 1;
  const Tensor added = at::zeros({batch, 1, z.s, z.t}, q.options());
  if (q.is_meta()) return added;
  Tensor masked_out =
      args.mask.defined() ? args.mask : at::zeros({1, 1, z.s, z.t}, q.options().dtype(at::kBool));
  if (args.causal) {
    const Tensor query = at::arange(z.t - z.s, z.t, q.options().dtype(at::kLong)).unsqueeze(1);
    const Tensor key = at::arange(z.t, q.options().dtype(at::kLong)).unsqueeze(0);
    masked_out = masked_out.logical_or(key > query);
    if (args.window > 0) masked_out = masked_out.logical_or(key < query - args.window);
  }
  return added.masked_fill_(masked_out, -std::numeric_limits<double>::infinity());
}

/// [s, b, n d] with heads truncated or zero-padded to `to` channels.
Tensor resize_heads(const Tensor& x_sbh, std::int64_t heads, std::int64_t to) {
  const std::int64_t d = x_sbh.size(-1) / heads;
  if (d == to) return x_sbh;
  const Tensor apart = x_sbh.unflatten(-1, {heads, d});
  return (to < d ? apart.narrow(-1, 0, to) : zero_padded(apart, to)).flatten(-2);
}

struct FlashArgs {
  double scale;
  bool causal;
  Sinks sinks;
};

struct FlashFunction : torch::autograd::Function<FlashFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const MaybeTensor& mask_in, const MaybeTensor& sinks, const FlashArgs& args) {
    const Tensor mask = mask_in.value_or(Tensor());
    const std::int64_t head_dim = std::max(q.size(3), v.size(3));
    const Tensor key = zero_padded(k, head_dim);
    const FoldedHeads fold(HeadSizes(zero_padded(q, head_dim), key), mask);
    Tensor y;
    Tensor lse;
    const Tensor query = fold.query(zero_padded(q, head_dim));
    if (q.is_meta()) {
      y = at::empty_like(query);
      lse = at::empty({query.size(0), query.size(2), query.size(1)},
                      q.options().dtype(acc_type(q.scalar_type())));
    } else {
      const Tensor folded_mask = fold.mask(mask);
      std::tie(y, lse) = at::_scaled_dot_product_flash_attention_for_cpu(
          query, fold.key(key), fold.key(zero_padded(v, head_dim)), 0.0, args.causal,
          folded_mask.defined() ? std::optional(folded_mask) : std::nullopt, args.scale);
      if (sinks) add_sinks(y, lse, fold.per_head(sinks->to(lse.scalar_type())));
    }
    save_value(ctx, args);
    const Tensor result = resize_heads(fold.joined(y), q.size(1), v.size(3));
    ctx->save_for_backward({q, k, v, mask, v.size(3) == head_dim ? y : result, lse});
    return result;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& q = saved[0];
    const Tensor& k = saved[1];
    const Tensor& v = saved[2];
    const auto args = saved_value<FlashArgs>(ctx);
    if (q.is_meta()) {
      if (tensor::Parameter* sinks = args.sinks.learned) sinks->accumulate(at::empty_like(sinks->value));
      return {at::empty_like(q), at::empty_like(k), at::empty_like(v), Tensor(), Tensor(), Tensor()};
    }
    const std::int64_t heads = q.size(1), d = q.size(3), w = v.size(3), head_dim = std::max(d, w);
    const Tensor query = zero_padded(q, head_dim), key = zero_padded(k, head_dim);
    const FoldedHeads fold(HeadSizes(query, key), saved[3]);
    const Tensor mask = fold.mask(saved[3]);
    const auto unfold_padded = [&](const Tensor& x) { return fold.apart(resize_heads(x, heads, head_dim)); };
    const Tensor grad_y = unfold_padded(grads[0].contiguous());
    const Tensor y = w == head_dim ? saved[4] : unfold_padded(saved[4]);
    if (args.sinks.learned != nullptr) add_sink_gradient(fold, grad_y, y, saved[5], args.sinks);
    const auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        grad_y, fold.query(query), fold.key(key), fold.key(zero_padded(v, head_dim)), y, saved[5], 0.0,
        args.causal, mask.defined() ? std::optional(mask) : std::nullopt, args.scale);
    return {fold.query_grad(grad_q).narrow(-1, 0, d),
            fold.key_grad(grad_k).narrow(-1, 0, d),
            fold.key_grad(grad_v).narrow(-1, 0, w),
            Tensor(),
            Tensor(),
            Tensor()};
  }

  static void add_sink_gradient(const FoldedHeads& fold, const Tensor& grad_y, const Tensor& y,
                                const Tensor& lse, const Sinks& sinks) {
    const Tensor local = sinks.learned->value.detach().narrow(0, sinks.first, fold.z.n);
    const Tensor weight = (fold.per_head(local.to(lse.scalar_type())) - lse).exp_();
    const Tensor dot = (grad_y.to(lse.scalar_type()) * y).sum(-1);
    accumulate_sinks(sinks, fold.sum_per_head(dot * weight).neg_());
  }
};

/// A copy of a parameter's value whose gradient goes to main_grad.
struct ParameterValueFunction : torch::autograd::Function<ParameterValueFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& value, tensor::Parameter* parameter) {
    save_value(ctx, parameter);
    return value.clone();
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    saved_value<tensor::Parameter*>(ctx)->accumulate(grads[0]);
    return {Tensor(), Tensor()};
  }
};

/// Sink logit of each head [n]; zeros if not learned.
Tensor sink_logits(const HeadSizes& z, const Tensor& q, const AttentionArgs& args) {
  tensor::Parameter* learned = args.sinks.learned;
  if (learned == nullptr) return at::zeros({z.n}, q.options());
  return ParameterValueFunction::apply(learned->value, learned).narrow(0, args.sinks.first, z.n);
}

/// Attention with materialized scores, for features that LibTorch's kernels lack: dropout by position, soft
/// caps, biases, and sinks on CUDA. A sink is an extra key whose value is zero.
Tensor attention_with_materialized_scores(const Qkv& qkv, const Tensor& mask, const HeadSizes& z,
                                          const AttentionArgs& args, bool sinks) {
  const Tensor q = qkv.q.reshape({z.b, z.g, z.repeat * z.s, z.d});
  const bool capped = args.softcap > 0;
  const double scaling = capped ? 1.0 : args.layer_scaling;  // factor still to be applied to the scores
  const double scale = capped ? args.scale * args.layer_scaling / args.softcap : args.scale;
  // Scale q before the matmul if the scores could otherwise overflow.
  const Tensor raw =
      at::matmul(scaling == 1 ? q : q * scale, qkv.k.transpose(-2, -1)).view({z.b, z.n, z.s, z.t});
  Tensor scores = scaling == 1 ? raw * scale : raw;
  if (capped) {
    scores.tanh_();
    scores = scores * args.softcap;
  }
  if (args.bias.defined()) scores = scores + (scaling == 1 ? args.bias : args.bias / scaling);
  if (mask.defined()) scores = scores + mask;
  Tensor v = qkv.v;
  const std::int64_t w = v.size(3);
  if (sinks) {
    const Tensor logits = sink_logits(z, qkv.q, args).view({1, z.n, 1, 1}).expand({z.b, z.n, z.s, 1});
    scores = at::cat({scores, scaling == 1 ? logits : logits / scaling}, -1);
    v = at::cat({v, at::zeros({z.b, z.g, 1, w}, v.options())}, -2);
  }
  if (scaling != 1) scores = (scores - scores.detach().amax(-1, /*keepdim=*/true)).mul_(scaling);
  Tensor weights = scores.softmax(-1);
  if (args.dropout > 0) weights = attention_dropout(weights, args.dropout, args.key);
  const Tensor y = at::matmul(weights.view({z.b, z.g, z.repeat * z.s, v.size(-2)}), v);
  return y.view({z.b, z.n, z.s, w}).permute({2, 0, 1, 3}).reshape({z.s, z.b, z.n * w});
}

void check_attention(const Qkv& qkv, const AttentionArgs& args) {
  COL_CHECK(
      qkv.q.dim() == 4 && qkv.k.dim() == 4 && qkv.v.dim() == 4 &&
          qkv.v.sizes().slice(0, 3) == qkv.k.sizes().slice(0, 3) && qkv.k.size(0) == qkv.q.size(0) &&
          qkv.k.size(3) == qkv.q.size(3) && qkv.k.size(1) > 0 && qkv.q.size(1) % qkv.k.size(1) == 0 &&
          (!args.causal || qkv.k.size(2) >= qkv.q.size(2)),
      "attention: q must be [b, n, s, d], k [b, g, t, d] and v [b, g, t, w] with g dividing n and, when causal, "
      "t >= s; got {}, {}, {}",
      c10::str(qkv.q.sizes()), c10::str(qkv.k.sizes()), c10::str(qkv.v.sizes()));
  COL_CHECK(args.window == 0 || args.causal, "attention with a window must be causal; got window {}",
            args.window);
  const Sinks& sinks = args.sinks;
  COL_CHECK(!sinks.any() || args.dropout == 0, "attention with sinks must have dropout 0; got {}",
            args.dropout);
  COL_CHECK(sinks.learned == nullptr || sinks.learned->value.numel() >= sinks.first + qkv.q.size(1),
            "attention sinks must cover {} heads from head {}; got {}", qkv.q.size(1), sinks.first,
            c10::str(sinks.learned->value.sizes()));
  COL_CHECK(!args.bias.defined() ||
                args.bias.sizes() == at::IntArrayRef({1, qkv.q.size(1), qkv.q.size(2), qkv.k.size(2)}),
            "attention bias must be [1, n, s, t]; got {}", c10::str(args.bias.sizes()));
  const Tensor& mask = args.mask;
  COL_CHECK(!mask.defined() || (mask.scalar_type() == at::kBool && mask.dim() == 4 &&
                                (mask.size(0) == 1 || mask.size(0) == qkv.q.size(0)) && mask.size(1) == 1 &&
                                mask.size(2) == qkv.q.size(2) && mask.size(3) == qkv.k.size(2)),
            "attention mask must be bool [b or 1, 1, s, t]; got {}", c10::str(mask.sizes()));
  COL_CHECK(
      !args.documents.any() ||
          (args.causal && qkv.q.size(2) == qkv.k.size(2) && !mask.defined() && !args.bias.defined()),
      "attention within documents must be causal over equal numbers of queries and keys, without a mask or "
      "bias; got {} queries and {} keys",
      qkv.q.size(2), qkv.k.size(2));
}

}  // namespace

Tensor attention(const Qkv& qkv, const AttentionArgs& args) {
  check_attention(qkv, args);
  if (args.documents.any()) return attention_within_documents(qkv, args);
  const HeadSizes z(qkv.q, qkv.k);
  const bool windowed = args.window > 0 && args.window < z.t - 1;
  const bool square_causal = args.causal && z.s == z.t && z.s > 1;  // causal as the kernels define it
  const bool offset_causal = args.causal && z.s != z.t && z.s > 1;
  const bool masked = windowed || offset_causal || args.mask.defined();
  const bool sinks = args.sinks.any();
  if (args.dropout > 0 || args.softcap > 0 || args.bias.defined() || (sinks && qkv.q.is_cuda())) {
    const Tensor mask = masked || square_causal ? additive_mask(qkv.q, z, args) : Tensor();
    return attention_with_materialized_scores(qkv, mask, z, args, sinks);
  }
  const Tensor mask = masked ? additive_mask(qkv.q, z, args) : Tensor();
  if (!qkv.q.is_cuda()) {
    const Tensor logits = args.sinks.learned != nullptr
                              ? args.sinks.learned->value.detach().narrow(0, args.sinks.first, z.n)
                          : sinks ? at::zeros({z.n}, qkv.q.options())
                                  : Tensor();
    return FlashFunction::apply(qkv.q, qkv.k, qkv.v, maybe(mask), maybe(logits),
                                FlashArgs{args.scale * args.layer_scaling, square_causal, args.sinks});
  }
  const Tensor y = at::scaled_dot_product_attention(
      qkv.q, qkv.k, qkv.v, mask.defined() ? std::optional(mask) : std::nullopt, 0.0, square_causal && !masked,
      args.scale * args.layer_scaling, /*enable_gqa=*/z.repeat > 1);
  return y.permute({2, 0, 1, 3}).reshape({z.s, z.b, z.n * qkv.v.size(3)});
}

}  // namespace colonnade::ops
