// Attention to one block of keys at a time: see attention.h. On the CPU LibTorch's flash kernels, which take
// masks and every type. Its flash kernels of CUDA take neither masks nor 32 bits: there the scores are made.
#include <algorithm>

#include "colonnade/ops/attention_heads.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

/// What a hidden key's score becomes: so little that it counts for nothing beside any other; not -inf, so
/// that a query without a key gets numbers.
double nearly_nothing(at::ScalarType type) { return type == at::kHalf ? -65504.0 : -1e30; }

/// Masks as a tensor that is added to the scores.
Tensor added_block_mask(const Tensor& q, const Tensor& hidden) {
  if (!hidden.defined()) return {};
  return at::zeros(hidden.sizes(), q.options()).masked_fill_(hidden, nearly_nothing(q.scalar_type()));
}

bool has_flash_of_cuda(const Qkv& qkv, const BlockMask& mask) {
  const auto type = qkv.q.scalar_type();
  return qkv.q.is_cuda() && (type == at::kBFloat16 || type == at::kHalf) && qkv.q.size(3) % 8 == 0 &&
         qkv.q.size(3) <= 256 && !mask.hidden.defined();
}

/// Queries [b, g, n/g, s, d] some rows at a time, so that a tensor of their scores stays below 256 MiB in
/// fp32.
struct Pieces {
  explicit Pieces(const HeadSizes& sizes)
      : z(sizes), rows(std::clamp<std::int64_t>((std::int64_t{1} << 26) / (z.b * z.n * z.t), 1, z.s)) {}
  HeadSizes z;
  std::int64_t rows;

  template <typename Body>
  void each(const Body& body) const {
    for (std::int64_t first = 0; first < z.s; first += rows) body(first, std::min(rows, z.s - first));
  }
  /// x [b, n, s, ...], the rows [first, first + count) of it as [b, g, n/g count, ...].
  [[nodiscard]] Tensor grouped(const Tensor& x, std::int64_t first, std::int64_t count,
                               at::ScalarType type) const {
    auto shape = x.sizes().vec();
    shape[1] = z.g;
    shape[2] = z.repeat * count;
    return x.narrow(2, first, count).to(type).reshape(shape);
  }
  /// scale q k^T with hidden ones made small, [b, g, n/g count, t].
  [[nodiscard]] Tensor scores(const Qkv& qkv, const BlockMask& mask, double scale, std::int64_t first,
                              std::int64_t count) const {
    const auto type = acc_type(qkv.q.scalar_type());
    const Tensor keys = qkv.k.to(type).transpose(-2, -1);
    Tensor all = at::matmul(grouped(qkv.q, first, count, type), keys).mul_(scale);
    const Tensor by_head = all.view({z.b, z.n, count, z.t});
    if (mask.hidden.defined())
      by_head.masked_fill_(mask.hidden.narrow(2, first, count), nearly_nothing(type));
    if (mask.causal)
      by_head.masked_fill_(at::ones({count, z.t}, qkv.q.options().dtype(at::kBool)).triu(first + 1),
                           nearly_nothing(type));
    return all;
  }
};

}  // namespace

void add_sinks(const Tensor& y, const Tensor& lse, const Tensor& sinks) {
  const Tensor alone = lse.clone();
  lse.copy_(at::logaddexp(alone, sinks));
  y.mul_((alone - lse).exp_().unsqueeze(-1));
}

void accumulate_sinks(const Sinks& sinks, const Tensor& grad) {
  tensor::Parameter& parameter = *sinks.learned;
  if (grad.numel() == parameter.value.numel()) return parameter.accumulate(grad);
  const Tensor all = at::zeros(parameter.value.sizes(), grad.options());
  all.narrow(0, sinks.first, grad.numel()).copy_(grad);
  parameter.accumulate(all);
}

BlockOutput attention_block_by_scores(const Qkv& qkv, double scale, const BlockMask& mask) {
  const Pieces pieces(HeadSizes(qkv.q, qkv.k));
  const HeadSizes& z = pieces.z;
  const auto type = acc_type(qkv.q.scalar_type());
  const BlockOutput block{at::empty({z.b, z.n, z.s, qkv.v.size(3)}, qkv.q.options()),
                          at::empty({z.b, z.n, z.s}, qkv.q.options().dtype(type))};
  const Tensor values = qkv.v.to(type);
  pieces.each([&](std::int64_t first, std::int64_t count) {
    const Tensor scores = pieces.scores(qkv, mask, scale, first, count);
    const Tensor lse = scores.logsumexp(-1, /*keepdim=*/true);
    const Tensor y = at::matmul(scores.sub_(lse).exp_(), values);
    block.y.narrow(2, first, count).copy_(y.view({z.b, z.n, count, values.size(3)}));
    block.lse.narrow(2, first, count).copy_(lse.view({z.b, z.n, count}));
  });
  return block;
}

Qkv attention_block_backward_by_scores(const Tensor& grad_y, const Qkv& qkv, const BlockOutput& whole,
                                       double scale, const BlockMask& mask) {
  const Pieces pieces(HeadSizes(qkv.q, qkv.k));
  const auto type = acc_type(qkv.q.scalar_type());
  const Tensor keys = qkv.k.to(type), values = qkv.v.to(type);
  const Tensor grad_q = at::empty(qkv.q.sizes(), qkv.q.options());
  const Tensor grad_k = at::zeros_like(keys), grad_v = at::zeros_like(values);
  pieces.each([&](std::int64_t first, std::int64_t count) {
    const auto rows = [&](const Tensor& x) { return pieces.grouped(x, first, count, type); };
    const Tensor q = rows(qkv.q), grad = rows(grad_y);
    const Tensor shares =
        pieces.scores(qkv, mask, scale, first, count).sub_(rows(whole.lse).unsqueeze(-1)).exp_();
    grad_v.add_(at::matmul(shares.transpose(-2, -1), grad));
    const Tensor dot = (grad * rows(whole.y)).sum(-1, /*keepdim=*/true);
    const Tensor grad_scores = at::matmul(grad, values.transpose(-2, -1)).sub_(dot).mul_(shares).mul_(scale);
    grad_k.add_(at::matmul(grad_scores.transpose(-2, -1), q));
    grad_q.narrow(2, first, count)
        .copy_(at::matmul(grad_scores, keys).view({pieces.z.b, pieces.z.n, count, pieces.z.d}));
  });
  return {grad_q, grad_k.to(qkv.k.scalar_type()), grad_v.to(qkv.v.scalar_type())};
}

BlockOutput attention_block(const Qkv& qkv, double scale, const BlockMask& given) {
  const HeadSizes z(qkv.q, qkv.k);
  if (qkv.q.is_meta())
    return {at::empty({z.b, z.n, z.s, z.d}, qkv.q.options()),
            at::empty({z.b, z.n, z.s}, qkv.q.options().dtype(acc_type(qkv.q.scalar_type())))};
  if (has_flash_of_cuda(qkv, given)) {
    const auto result = at::_scaled_dot_product_flash_attention(qkv.q, qkv.k, qkv.v, 0.0, given.causal,
                                                                /*return_debug_mask=*/false, scale);
    return {std::get<0>(result), std::get<1>(result)};
  }
  if (qkv.q.is_cuda()) return attention_block_by_scores(qkv, scale, given);
  const Tensor mask = added_block_mask(qkv.q, given.hidden);
  const FoldedHeads fold(z, mask);
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
  if (qkv.q.is_meta()) return {at::empty_like(qkv.q), at::empty_like(qkv.k), at::empty_like(qkv.v)};
  const HeadSizes z(qkv.q, qkv.k);
  if (has_flash_of_cuda(qkv, given)) {
    const Tensor none =
        at::empty({}, qkv.q.options().dtype(at::kLong));  // state of a dropout that is not there
    auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_backward(
        grad_y, qkv.q, qkv.k, qkv.v, whole.y, whole.lse.contiguous(), /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, z.s,
        z.t, 0.0, given.causal, none, none, scale);
    return {grad_q, grad_k, grad_v};
  }
  if (qkv.q.is_cuda()) return attention_block_backward_by_scores(grad_y, qkv, whole, scale, given);
  const Tensor mask = added_block_mask(qkv.q, given.hidden);
  const FoldedHeads fold(z, mask);
  const Tensor query = fold.query(qkv.q);
  const auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      fold.query(grad_y), query, fold.key(qkv.k), fold.key(qkv.v), fold.query(whole.y),
      whole.lse.reshape(query.sizes().slice(0, 3)), 0.0, given.causal, maybe(fold.mask(mask)), scale);
  return {fold.query_grad(grad_q), fold.key_grad(grad_k), fold.key_grad(grad_v)};
}

}  // namespace colonnade::ops
