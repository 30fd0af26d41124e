// The exchanges and their autograd rules: each is the other's backward.
#include "colonnade/layers/context_parallel/heads.h"

#include <ATen/ATen.h>

#include "colonnade/base/error.h"
#include "colonnade/layers/context_parallel/order.h"
#include "colonnade/tensor/kept.h"

namespace colonnade::layers {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Exchange {
  comm::Group group;
  std::string name;

  [[nodiscard]] std::int64_t ranks() const { return group.size(); }
  [[nodiscard]] Tensor operator()(const Tensor& sent, const char* what) const {
    Tensor received = at::empty_like(sent);
    group.all_to_all(received, sent, name + what).wait();
    return received;
  }
};

/// [k, l, s, d] of every tensor, one behind the other in l, exchanged and apart again.
std::vector<Tensor> exchanged(const std::vector<Tensor>& parts, const Exchange& exchange, const char* what) {
  std::vector<std::int64_t> lengths;
  for (const Tensor& part : parts) lengths.push_back(part.size(1));
  return exchange(at::cat(parts, 1), what).split_with_sizes(lengths, 1);
}

/// Heads [b, h, s, d] apart by the rank that gets them [k, b h / k, s, d].
Tensor by_rank(const Tensor& x, std::int64_t k) {
  const std::int64_t b = x.size(0), h = x.size(1), s = x.size(2), d = x.size(3);
  return x.reshape({b, k, h / k, s, d}).transpose(0, 1).reshape({k, b * h / k, s, d});
}

Tensor by_head(const Tensor& x, std::int64_t b) {
  const std::int64_t k = x.size(0), h = x.size(1) / b, s = x.size(2), d = x.size(3);
  return x.reshape({k, b, h, s, d}).transpose(0, 1).reshape({b, k * h, s, d});
}

struct HeadsForPositions : torch::autograd::Function<HeadsForPositions> {
  static variable_list forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                               const Exchange& exchange) {
    tensor::keep(ctx, exchange);
    const std::int64_t b = q.size(0), d = q.size(3), ranks = exchange.ranks();
    variable_list out;
    for (const Tensor& part : exchanged({by_rank(q, ranks), by_rank(k, ranks), by_rank(v, ranks)}, exchange,
                                        " / heads for positions"))
      out.push_back(sequence_order(part).view({b, part.size(1) / b, ranks * q.size(2), d}));
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto exchange = tensor::kept<Exchange>(ctx);
    const std::int64_t b = grads[0].size(0), s = grads[0].size(2), d = grads[0].size(3);
    std::vector<Tensor> parts;
    for (const Tensor& grad : grads)
      parts.push_back(rank_order(grad.reshape({b * grad.size(1), s, d}), exchange.ranks()));
    variable_list out;
    for (const Tensor& part : exchanged(parts, exchange, " / heads for positions, backward"))
      out.push_back(by_head(part, b));
    out.emplace_back();
    return out;
  }
};

struct PositionsForHeads : torch::autograd::Function<PositionsForHeads> {
  static Tensor forward(AutogradContext* ctx, const Tensor& y, const Exchange& exchange) {
    tensor::keep(ctx, exchange);
    const std::int64_t k = exchange.ranks(), s = y.size(0) / k, b = y.size(1), x = y.size(2);
    const Tensor parts = rank_order(y.reshape({1, k * s, b * x}), k);
    return exchange(parts, " / positions for heads")
        .view({k, s, b, x})
        .permute({1, 2, 0, 3})
        .reshape({s, b, k * x});
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto exchange = tensor::kept<Exchange>(ctx);
    const Tensor& grad = grads[0];
    const std::int64_t k = exchange.ranks(), s = grad.size(0), b = grad.size(1), x = grad.size(2) / k;
    const Tensor heads =
        grad.reshape({s, b, k, x}).permute({2, 0, 1, 3}).reshape({k, 1, s, b * x}).contiguous();
    return {sequence_order(exchange(heads, " / positions for heads, backward")).view({k * s, b, x}),
            Tensor()};
  }
};

/// Each key-value head as often as ranks share it.
Tensor repeated(const Tensor& x, std::int64_t ranks) {
  const std::int64_t b = x.size(0), g = x.size(1), s = x.size(2), d = x.size(3);
  if (g >= ranks) return x;
  return x.unsqueeze(2).expand({b, g, ranks / g, s, d}).reshape({b, ranks, s, d});
}

}  // namespace

ops::Qkv heads_for_positions(const ops::Qkv& part, const comm::Group& group, const std::string& name) {
  const std::int64_t k = group.size(), n = part.q.size(1), g = part.k.size(1);
  COL_CHECK(
      n % k == 0 && (g % k == 0 || k % g == 0),
      "{}: context ranks must share heads evenly; got {} query heads and {} key-value heads for {} ranks",
      name, n, g, k);
  const variable_list out =
      HeadsForPositions::apply(part.q, repeated(part.k, k), repeated(part.v, k), Exchange{group, name});
  return {out[0], out[1], out[2]};
}

at::Tensor positions_for_heads(const at::Tensor& y_sbh, const comm::Group& group, const std::string& name) {
  return PositionsForHeads::apply(y_sbh, Exchange{group, name});
}

}  // namespace colonnade::layers
