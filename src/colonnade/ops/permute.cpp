// See permute.h; the arithmetic is in kernels/permute.
#include "colonnade/ops/permute.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/searchsorted.h>

#include <cmath>

#include "colonnade/kernels/permute.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

/// y[p] = x[from[p]] * weight[p].
Tensor take(const Tensor& x, const Tensor& from, const Tensor& weight) {
  const Tensor y = at::empty({from.size(0), x.size(1)}, x.options());
  with_float_type(x.scalar_type(), [&]<typename T>() {
    launch(y, kernels::cpu::take_rows<T>, kernels::cuda::take_rows<T>,
           kernels::TakeRows<T>{in<T>(x), in<std::int64_t>(from), in<kernels::Acc<T>>(weight), out<T>(y),
                                y.size(0), y.size(1)});
  });
  return y;
}

/// y[t] = sum over j of x[place[t, j]] * weight[t, j].
Tensor sum(const Tensor& x, const Tensor& place, const Tensor& weight) {
  const Tensor y = at::empty({place.size(0), x.size(1)}, x.options());
  with_float_type(x.scalar_type(), [&]<typename T>() {
    launch(y, kernels::cpu::sum_rows<T>, kernels::cuda::sum_rows<T>,
           kernels::SumRows<T>{in<T>(x), in<std::int64_t>(place), in<kernels::Acc<T>>(weight), out<T>(y),
                               y.size(0), place.size(1), y.size(1)});
  });
  return y;
}

Tensor dots(const Tensor& a, const Tensor& x, const Tensor& place) {
  const Tensor y = at::empty(place.sizes(), a.options().dtype(acc_type(a.scalar_type())));
  with_float_type(a.scalar_type(), [&]<typename T>() {
    launch(y, kernels::cpu::dot_rows<T>, kernels::cuda::dot_rows<T>,
           kernels::DotRows<T>{in<T>(a), in<T>(x), in<std::int64_t>(place), out<kernels::Acc<T>>(y),
                               a.size(0), place.size(1), a.size(1)});
  });
  return y;
}

struct PermuteRule : torch::autograd::Function<PermuteRule> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const RowOrder& order) {
    keep(ctx, order);
    return take(x, order.token, {});
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {sum(grads[0].contiguous(), kept<RowOrder>(ctx).place, {}), Tensor()};
  }
};

struct UnpermuteRule : torch::autograd::Function<UnpermuteRule> {
  static Tensor forward(AutogradContext* ctx, const Tensor& rows, const Tensor& weights,
                        const RowOrder& order) {
    ctx->save_for_backward({rows, weights});
    keep(ctx, order);
    return sum(rows, order.place, weights);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto order = kept<RowOrder>(ctx);
    const Tensor grad = grads[0].contiguous();
    const Tensor weight_of_row = grad.is_meta() ? at::empty(order.pair.sizes(), saved[1].options())
                                                : saved[1].reshape(-1).index_select(0, order.pair);
    return {take(grad, order.token, weight_of_row), dots(grad, saved[0], order.place), Tensor()};
  }
};

/// Every expert begins at a multiple of range.most. `sorted` are the experts of `pair`, [0, count] with count
/// for those that are dropped.
RowOrder filled_order(const Tensor& sorted, const Tensor& pair, std::int64_t k, const ExpertRange& range) {
  const auto options = pair.options();
  const std::int64_t rows = range.count * range.most;
  const Tensor begins = at::searchsorted(sorted, at::arange(range.count + 1, options));
  const Tensor within = at::arange(pair.size(0), options) - begins.index_select(0, sorted);
  const Tensor there = sorted.lt(range.count);
  const Tensor row = sorted * range.most + within;
  Tensor from = at::full({rows + 1}, -1, options);
  from.scatter_(0, row.masked_fill(there.logical_not(), rows), pair);  // the last one is nobody's
  from = from.narrow(0, 0, rows);
  const Tensor place = at::empty({pair.size(0)}, options);
  place.scatter_(0, pair, row.masked_fill(there.logical_not(), -1));
  return {from.div(k, "floor"), from.clamp_min(0), place.view({-1, k}),
          at::full({range.count}, range.most, options)};
}

}  // namespace

RowOrder order_by_expert(const Tensor& experts, const ExpertRange& range) {
  COL_CHECK(
      experts.dim() == 2 && experts.scalar_type() == at::kLong && range.first >= 0 && range.count >= 1 &&
          range.first + range.count <= range.all,
      "order_by_expert: experts must be int64 [n, k], and the range one of theirs; got {} {} and [{}, {}) "
      "of {}",
      c10::toString(experts.scalar_type()), c10::str(experts.sizes()), range.first, range.first + range.count,
      range.all);
  const std::int64_t pairs = experts.numel();
  const auto options = experts.options();
  const bool limited = range.most > 0;
  if (experts.is_meta()) {
    const double even = static_cast<double>(pairs * range.count) / static_cast<double>(range.all);
    std::int64_t rows = std::llround(even * range.assumed);
    if (limited) rows = range.filled ? range.count * range.most : std::min(rows, range.count * range.most);
    return {at::empty({rows}, options), at::empty({rows}, options), at::empty(experts.sizes(), options),
            at::empty({range.count}, options)};
  }
  const bool all = range.count == range.all && !limited;
  Tensor wanted = experts.reshape(-1);
  if (!all) {
    wanted = wanted - range.first;
    wanted.masked_fill_(wanted.lt(0).logical_or_(wanted.ge(range.count)), range.count);
  }
  auto [sorted, pair] = wanted.sort(/*stable=*/true, 0, false);
  if (range.filled) return filled_order(sorted, pair, experts.size(1), range);
  const Tensor ends = at::searchsorted(sorted, at::arange(1, range.count + 1, options));
  Tensor counts = ends.clone();
  counts.narrow(0, 1, range.count - 1).sub_(ends.narrow(0, 0, range.count - 1));
  if (!all) pair = pair.narrow(0, 0, ends[range.count - 1].item<std::int64_t>()).clone();
  Tensor place = at::full({pairs}, -1, options);
  place.scatter_(0, pair, at::arange(pair.size(0), options));
  return {pair.div(experts.size(1), "floor"), pair, place.view(experts.sizes()), counts};
}

Tensor permute(const Tensor& x, const RowOrder& order) {
  COL_CHECK(x.dim() == 2 && x.size(0) == order.place.size(0), "permute: x must be [{}, h]; got {}",
            order.place.size(0), c10::str(x.sizes()));
  return PermuteRule::apply(x.contiguous(), order);
}

Tensor unpermute(const Tensor& rows, const Tensor& weights, const RowOrder& order) {
  COL_CHECK(rows.dim() == 2 && rows.size(0) == order.token.size(0) &&
                weights.sizes() == order.place.sizes() &&
                weights.scalar_type() == acc_type(rows.scalar_type()),
            "unpermute: rows must be [{}, h] and weights {} in the type of sums; got {} and {} {}",
            order.token.size(0), c10::str(order.place.sizes()), c10::str(rows.sizes()),
            c10::toString(weights.scalar_type()), c10::str(weights.sizes()));
  return UnpermuteRule::apply(rows.contiguous(), weights.contiguous(), order);
}

}  // namespace colonnade::ops
