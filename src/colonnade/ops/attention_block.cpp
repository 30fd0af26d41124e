// Block attention, see attention.h. LibTorch's CPU flash kernels support masks and every dtype. Its CUDA
// flash kernels support neither masks nor 32 bits, and no kernel supports soft caps or dropout by position:
// these cases materialize scores.
#include <algorithm>
#include <limits>
#include <numeric>

#include "colonnade/ops/attention_heads.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

/// Score of a masked key: negligible next to any other, but finite, so that a query without keys yields no
/// NaN.
double masked_score(at::ScalarType type) { return type == at::kHalf ? -65504.0 : -1e30; }

/// Additive mask for the scores.
Tensor added_block_mask(const Tensor& q, const Tensor& masked) {
  if (!masked.defined()) return {};
  return at::zeros(masked.sizes(), q.options()).masked_fill_(masked, masked_score(q.scalar_type()));
}

bool has_cuda_flash(const Qkv& qkv, const BlockMask& mask) {
  const auto type = qkv.q.scalar_type();
  return qkv.q.is_cuda() && (type == at::kBFloat16 || type == at::kHalf) && qkv.q.size(3) % 8 == 0 &&
         qkv.q.size(3) <= 256 && !mask.masked.defined();
}

bool needs_scores(const Qkv& qkv, const BlockArgs& args, const BlockMask& mask) {
  if (args.softcap > 0 || args.dropout > 0) return true;
  return qkv.q.is_cuda() && !has_cuda_flash(qkv, mask);
}

/// Splits queries [b, g, n/g, s, d] into chunks of rows whose score tensor has at most
/// `max_elements` elements. With dropout, the positions of a chunk are contiguous.
struct QueryChunks {
  QueryChunks(const Qkv& all, const BlockArgs& block, const BlockMask& mask_in,
              std::int64_t max_elements = layout::kMaxScoreElements)
      : qkv(all),
        args(block),
        mask(mask_in),
        z(all.q, all.k),
        rows(std::clamp<std::int64_t>(max_elements / (z.b * z.n * z.t), 1, z.s)),
        type(acc_type(all.q.scalar_type())) {
    COL_CHECK(args.dropout == 0 || (length_of(mask.queries) == z.s && length_of(mask.keys) == z.t),
              "block attention with dropout must have positions of all {} queries and {} keys; got {} and {}",
              z.s, z.t, length_of(mask.queries), length_of(mask.keys));
  }
  const Qkv& qkv;
  const BlockArgs& args;
  const BlockMask& mask;
  HeadSizes z;
  std::int64_t rows;
  at::ScalarType type;

  static std::int64_t length_of(const std::vector<layout::TokenSpan>& chunks) {
    return std::accumulate(chunks.begin(), chunks.end(), std::int64_t{0},
                           [](std::int64_t sum, const layout::TokenSpan& c) { return sum + c.length; });
  }

  /// Calls body(first row, rows, position of the first row) for each chunk.
  template <typename Body>
  void for_each(const Body& body) const {
    const std::vector<layout::TokenSpan> merged{{0, z.s}};
    std::int64_t begin = 0;
    for (const layout::TokenSpan& chunk : args.dropout > 0 ? mask.queries : merged) {
      for (std::int64_t at = 0; at < chunk.length; at += rows)
        body(begin + at, std::min(rows, chunk.length - at), chunk.begin + at);
      begin += chunk.length;
    }
  }
  /// Rows [first, first + count) of x [b, n, s, ...] as [b, g, n/g count, ...].
  [[nodiscard]] Tensor grouped_rows(const Tensor& x, std::int64_t first, std::int64_t count) const {
    auto shape = x.sizes().vec();
    shape[1] = z.g;
    shape[2] = z.repeat * count;
    return x.narrow(2, first, count).to(type).reshape(shape);
  }
  /// Scaled, capped and masked scores [b, g, n/g count, t]; `slope` receives the derivative of the cap.
  [[nodiscard]] Tensor scores(std::int64_t first, std::int64_t count, Tensor* slope = nullptr) const {
    Tensor all = at::matmul(grouped_rows(qkv.q, first, count), qkv.k.to(type).transpose(-2, -1));
    if (args.softcap > 0) {
      all.mul_(args.scale / args.softcap).tanh_();
      if (slope != nullptr) *slope = all.square().neg_().add_(1);
    }
    all.mul_(args.softcap > 0 ? args.softcap : args.scale);
    const Tensor by_head = all.view({z.b, z.n, count, z.t});
    if (mask.masked.defined()) by_head.masked_fill_(mask.masked.narrow(2, first, count), masked_score(type));
    if (mask.causal)
      by_head.masked_fill_(at::ones({count, z.t}, qkv.q.options().dtype(at::kBool)).triu(first + 1),
                           masked_score(type));
    return all;
  }
  /// Applies dropout in place to the weights, or their gradients, of `count` queries from `position`.
  void apply_dropout(const Tensor& all, std::int64_t count, std::int64_t position) const {
    if (args.dropout == 0) return;
    DropoutKey key = args.key;
    key.sequence_offset = position;
    const Tensor by_head = all.view({z.b, z.n, count, z.t});
    std::int64_t first = 0;
    for (const layout::TokenSpan& keys : mask.keys) {
      const Tensor part = by_head.narrow(3, first, keys.length);
      const Tensor dropped = part.contiguous();  // the same tensor if the block is a single chunk
      drop_attention_weights(dropped, args.dropout, key, keys.begin);
      if (!dropped.is_same(part)) part.copy_(dropped);
      first += keys.length;
    }
  }
  /// On meta: allocates the memory of `tensors` score tensors that are live during a chunk.
  void allocate_meta(std::int64_t tensors) const {
    const auto longest = [](const std::vector<layout::TokenSpan>& chunks) {
      return std::ranges::max(chunks, {}, &layout::TokenSpan::length).length;
    };
    const bool drops = args.dropout > 0;
    const std::int64_t most = std::min(rows, drops ? longest(mask.queries) : z.s);
    const std::int64_t copied = drops && mask.keys.size() > 1 ? longest(mask.keys) : 0;
    const Tensor held = at::empty({z.b, z.n, most, tensors * z.t + copied}, qkv.q.options().dtype(type));
  }
};

}  // namespace

Tensor zero_padded(const Tensor& x, std::int64_t head_dim) {
  if (x.size(-1) == head_dim) return x;
  auto shape = x.sizes().vec();
  shape.back() = head_dim;
  const Tensor y = at::zeros(shape, x.options());
  y.narrow(-1, 0, x.size(-1)).copy_(x);
  return y;
}

void add_sinks(const Tensor& y, const Tensor& lse, const Tensor& sinks) {
  const Tensor before = lse.clone();
  lse.copy_(at::logaddexp(before, sinks));
  y.mul_((before - lse).exp_().unsqueeze(-1));
}

void accumulate_sinks(const Sinks& sinks, const Tensor& grad) {
  tensor::Parameter& parameter = *sinks.learned;
  if (grad.numel() == parameter.value.numel()) return parameter.accumulate(grad);
  const Tensor all = at::zeros(parameter.value.sizes(), grad.options());
  all.narrow(0, sinks.first, grad.numel()).copy_(grad);
  parameter.accumulate(all);
}

BlockOutput attention_block_by_scores(const Qkv& qkv, const BlockArgs& args, const BlockMask& mask) {
  const QueryChunks chunks(qkv, args, mask);
  const HeadSizes& z = chunks.z;
  const BlockOutput block{at::empty({z.b, z.n, z.s, qkv.v.size(3)}, qkv.q.options()),
                          at::empty({z.b, z.n, z.s}, qkv.q.options().dtype(chunks.type))};
  const Tensor values = qkv.v.to(chunks.type);
  if (qkv.q.is_meta()) {
    chunks.allocate_meta(layout::kForwardScoreTensors);
    return block;
  }
  chunks.for_each([&](std::int64_t first, std::int64_t count, std::int64_t position) {
    const Tensor scores = chunks.scores(first, count);
    const Tensor lse = scores.logsumexp(-1, /*keepdim=*/true);
    const Tensor weights = scores.sub_(lse).exp_();
    chunks.apply_dropout(weights, count, position);
    block.y.narrow(2, first, count)
        .copy_(at::matmul(weights, values).view({z.b, z.n, count, values.size(3)}));
    block.lse.narrow(2, first, count).copy_(lse.view({z.b, z.n, count}));
  });
  return block;
}

Tensor max_scores(const Qkv& qkv, const BlockArgs& args, const BlockMask& mask) {
  const at::NoGradGuard no_grad;
  const auto options = qkv.q.options().dtype(acc_type(qkv.q.scalar_type()));
  if (qkv.q.is_meta()) return at::empty({qkv.q.size(1)}, options);
  const Qkv wide{qkv.q, qkv.k.to(options.dtype().toScalarType()), qkv.v};
  const BlockArgs plain{.scale = args.scale};
  const QueryChunks chunks(wide, plain, mask, kMaxTrackedScores);
  const Tensor most = at::full({chunks.z.n}, -std::numeric_limits<double>::infinity(), options);
  chunks.for_each([&](std::int64_t first, std::int64_t count, std::int64_t /*position*/) {
    const Tensor scores = chunks.scores(first, count).view({chunks.z.b, chunks.z.n, count, chunks.z.t});
    most.copy_(at::maximum(most, scores.amax({0, 2, 3})));
  });
  return most;
}

// With weights p = exp(score - lse) and dropout factors m (0 or 1 / (1 - dropout)), y = sum of m p v. The
// gradient of a score is p (m dy.v - dy.y), times the derivative of the cap.
Qkv attention_block_backward_by_scores(const Tensor& grad_y, const Qkv& qkv, const BlockOutput& merged,
                                       const BlockArgs& args, const BlockMask& mask) {
  const QueryChunks chunks(qkv, args, mask);
  const Tensor keys = qkv.k.to(chunks.type), values = qkv.v.to(chunks.type);
  const Tensor grad_q = at::empty(qkv.q.sizes(), qkv.q.options());
  const Tensor grad_k = at::zeros_like(keys), grad_v = at::zeros_like(values);
  if (qkv.q.is_meta()) {
    chunks.allocate_meta(layout::backward_score_tensors(args.softcap > 0));
    return {grad_q, grad_k.to(qkv.k.scalar_type()), grad_v.to(qkv.v.scalar_type())};
  }
  chunks.for_each([&](std::int64_t first, std::int64_t count, std::int64_t position) {
    const auto rows = [&](const Tensor& x) { return chunks.grouped_rows(x, first, count); };
    const Tensor q = rows(qkv.q), grad = rows(grad_y);
    Tensor slope;
    const Tensor probs = chunks.scores(first, count, &slope).sub_(rows(merged.lse).unsqueeze(-1)).exp_();
    {
      const Tensor weights = args.dropout > 0 ? probs.clone() : probs;
      chunks.apply_dropout(weights, count, position);
      grad_v.add_(at::matmul(weights.transpose(-2, -1), grad));
    }
    const Tensor dot = (grad * rows(merged.y)).sum(-1, /*keepdim=*/true);
    const Tensor grad_scores = at::matmul(grad, values.transpose(-2, -1));
    chunks.apply_dropout(grad_scores, count, position);
    grad_scores.sub_(dot).mul_(probs).mul_(args.scale);
    if (slope.defined()) grad_scores.mul_(slope);
    grad_k.add_(at::matmul(grad_scores.transpose(-2, -1), q));
    grad_q.narrow(2, first, count)
        .copy_(at::matmul(grad_scores, keys).view({chunks.z.b, chunks.z.n, count, chunks.z.d}));
  });
  return {grad_q, grad_k.to(qkv.k.scalar_type()), grad_v.to(qkv.v.scalar_type())};
}

BlockOutput attention_block(const Qkv& qkv, const BlockArgs& args, const BlockMask& mask_in) {
  if (needs_scores(qkv, args, mask_in)) return attention_block_by_scores(qkv, args, mask_in);
  const HeadSizes z(qkv.q, qkv.k);
  if (qkv.q.is_meta())
    return {at::empty({z.b, z.n, z.s, z.d}, qkv.q.options()),
            at::empty({z.b, z.n, z.s}, qkv.q.options().dtype(acc_type(qkv.q.scalar_type())))};
  if (qkv.q.is_cuda()) {
    const auto result = at::_scaled_dot_product_flash_attention(qkv.q, qkv.k, qkv.v, 0.0, mask_in.causal,
                                                                /*return_debug_mask=*/false, args.scale);
    return {std::get<0>(result), std::get<1>(result)};
  }
  const Tensor mask = added_block_mask(qkv.q, mask_in.masked);
  const FoldedHeads fold(z, mask);
  const auto [y, lse] = at::_scaled_dot_product_flash_attention_for_cpu(fold.query(qkv.q), fold.key(qkv.k),
                                                                        fold.key(qkv.v), 0.0, mask_in.causal,
                                                                        maybe(fold.mask(mask)), args.scale);
  return {y.reshape({z.b, z.n, z.s, z.d}), lse.reshape({z.b, z.n, z.s})};
}

void merge_block(const BlockOutput& into, const BlockOutput& more) {
  if (into.y.is_meta()) return;
  const Tensor lse = at::logaddexp(into.lse, more.lse);
  into.y.mul_((into.lse - lse).exp_().unsqueeze(-1)).add_(more.y * (more.lse - lse).exp_().unsqueeze(-1));
  into.lse.copy_(lse);
}

void merge_sinks(const BlockOutput& into, const Sinks& sinks) {
  if (into.y.is_meta() || !sinks.any()) return;
  const std::int64_t n = into.lse.size(1);
  const Tensor logits =
      sinks.learned != nullptr
          ? sinks.learned->value.detach().narrow(0, sinks.first, n).to(into.lse.scalar_type())
          : at::zeros({n}, into.lse.options());
  add_sinks(into.y, into.lse, logits.view({1, n, 1}));
}

void merge_sinks_backward(const Tensor& grad_y, const BlockOutput& merged, const Sinks& sinks) {
  if (sinks.learned == nullptr) return;
  tensor::Parameter& parameter = *sinks.learned;
  if (grad_y.is_meta()) return parameter.accumulate(at::empty_like(parameter.value));
  const std::int64_t n = merged.lse.size(1);
  const Tensor local = parameter.value.detach().narrow(0, sinks.first, n).to(merged.lse.scalar_type());
  const Tensor weight = (local.view({1, n, 1}) - merged.lse).exp_();
  const Tensor dot = (grad_y.to(merged.lse.scalar_type()) * merged.y).sum(-1);
  accumulate_sinks(sinks, (dot * weight).sum(at::IntArrayRef{0, 2}).neg_());
}

Qkv attention_block_backward(const Tensor& grad_y, const Qkv& qkv, const BlockOutput& merged,
                             const BlockArgs& args, const BlockMask& mask_in) {
  if (needs_scores(qkv, args, mask_in))
    return attention_block_backward_by_scores(grad_y, qkv, merged, args, mask_in);
  if (qkv.q.is_meta()) return {at::empty_like(qkv.q), at::empty_like(qkv.k), at::empty_like(qkv.v)};
  const HeadSizes z(qkv.q, qkv.k);
  if (qkv.q.is_cuda()) {
    const Tensor none = at::empty({}, qkv.q.options().dtype(at::kLong));  // unused dropout state
    auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_backward(
        grad_y, qkv.q, qkv.k, qkv.v, merged.y, merged.lse.contiguous(), /*cum_seq_q=*/{}, /*cum_seq_k=*/{},
        z.s, z.t, 0.0, mask_in.causal, none, none, args.scale);
    return {grad_q, grad_k, grad_v};
  }
  const Tensor mask = added_block_mask(qkv.q, mask_in.masked);
  const FoldedHeads fold(z, mask);
  const Tensor query = fold.query(qkv.q);
  const auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      fold.query(grad_y), query, fold.key(qkv.k), fold.key(qkv.v), fold.query(merged.y),
      merged.lse.reshape(query.sizes().slice(0, 3)), 0.0, mask_in.causal, maybe(fold.mask(mask)), args.scale);
  return {fold.query_grad(grad_q), fold.key_grad(grad_k), fold.key_grad(grad_v)};
}

}  // namespace colonnade::ops
