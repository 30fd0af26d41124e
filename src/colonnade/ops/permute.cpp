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
    launch(y, kernels::cpu::gather_rows<T>, kernels::cuda::gather_rows<T>,
           kernels::GatherRows<T>{in<T>(x), in<std::int64_t>(from), in<kernels::Acc<T>>(weight), out<T>(y),
                                  y.size(0), y.size(1)});
  });
  return y;
}

/// y[t] = sum over j of x[row_of_pair[t, j]] * weight[t, j].
Tensor sum(const Tensor& x, const Tensor& row_of_pair, const Tensor& weight) {
  const Tensor y = at::empty({row_of_pair.size(0), x.size(1)}, x.options());
  with_float_type(x.scalar_type(), [&]<typename T>() {
    launch(y, kernels::cpu::sum_rows<T>, kernels::cuda::sum_rows<T>,
           kernels::SumRows<T>{in<T>(x), in<std::int64_t>(row_of_pair), in<kernels::Acc<T>>(weight),
                               out<T>(y), y.size(0), row_of_pair.size(1), y.size(1)});
  });
  return y;
}

Tensor dots(const Tensor& a, const Tensor& x, const Tensor& row_of_pair) {
  const Tensor y = at::empty(row_of_pair.sizes(), a.options().dtype(acc_type(a.scalar_type())));
  with_float_type(a.scalar_type(), [&]<typename T>() {
    launch(y, kernels::cpu::dot_rows<T>, kernels::cuda::dot_rows<T>,
           kernels::DotRows<T>{in<T>(a), in<T>(x), in<std::int64_t>(row_of_pair), out<kernels::Acc<T>>(y),
                               a.size(0), row_of_pair.size(1), a.size(1)});
  });
  return y;
}

struct PermuteFunction : torch::autograd::Function<PermuteFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const PermuteMap& order) {
    save_value(ctx, order);
    return take(x, order.token, {});
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {sum(grads[0].contiguous(), saved_value<PermuteMap>(ctx).row_of_pair, {}), Tensor()};
  }
};

struct UnpermuteFunction : torch::autograd::Function<UnpermuteFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& rows, const Tensor& weights,
                        const PermuteMap& order) {
    ctx->save_for_backward({rows, weights});
    save_value(ctx, order);
    return sum(rows, order.row_of_pair, weights);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto order = saved_value<PermuteMap>(ctx);
    const Tensor grad = grads[0].contiguous();
    const Tensor weight_of_row = grad.is_meta() ? at::empty(order.pair.sizes(), saved[1].options())
                                                : saved[1].reshape(-1).index_select(0, order.pair);
    return {take(grad, order.token, weight_of_row), dots(grad, saved[0], order.row_of_pair), Tensor()};
  }
};

/// Row order in which every expert begins at a multiple of range.capacity. `sorted` holds the experts of
/// `pair` in [0, count], with count for dropped pairs.
PermuteMap padded_order(const Tensor& sorted, const Tensor& pair, std::int64_t k, const ExpertRange& range) {
  const auto options = pair.options();
  const std::int64_t rows = range.count * range.capacity;
  const Tensor starts = at::searchsorted(sorted, at::arange(range.count + 1, options));
  const Tensor index_in_expert = at::arange(pair.size(0), options) - starts.index_select(0, sorted);
  const Tensor is_kept = sorted.lt(range.count);
  const Tensor row = sorted * range.capacity + index_in_expert;
  Tensor from = at::full({rows + 1}, -1, options);
  from.scatter_(0, row.masked_fill(is_kept.logical_not(), rows),
                pair);  // the last row collects dropped pairs
  from = from.narrow(0, 0, rows);
  const Tensor row_of_pair = at::empty({pair.size(0)}, options);
  row_of_pair.scatter_(0, pair, row.masked_fill(is_kept.logical_not(), -1));
  return {from.div(k, "floor"), from.clamp_min(0), row_of_pair.view({-1, k}),
          at::full({range.count}, range.capacity, options)};
}

}  // namespace

PermuteMap make_permute_map(const Tensor& experts, const ExpertRange& range) {
  COL_CHECK(experts.dim() == 2 && experts.scalar_type() == at::kLong && range.first >= 0 &&
                range.count >= 1 && range.first + range.count <= range.num_experts,
            "experts must be int64 [n, k], and their range within all experts; got {} {} and [{}, {}) "
            "of {}",
            c10::toString(experts.scalar_type()), c10::str(experts.sizes()), range.first,
            range.first + range.count, range.num_experts);
  const std::int64_t pairs = experts.numel();
  const auto options = experts.options();
  const bool has_capacity = range.capacity > 0;
  if (experts.is_meta()) {
    const double even = static_cast<double>(pairs * range.count) / static_cast<double>(range.num_experts);
    std::int64_t rows = std::llround(even * range.meta_load_factor);
    if (has_capacity)
      rows = range.padded ? range.count * range.capacity : std::min(rows, range.count * range.capacity);
    return {at::empty({rows}, options), at::empty({rows}, options), at::empty(experts.sizes(), options),
            at::empty({range.count}, options)};
  }
  const bool all = range.count == range.num_experts && !has_capacity;
  Tensor local_experts = experts.reshape(-1);
  if (!all) {
    local_experts = local_experts - range.first;
    local_experts.masked_fill_(local_experts.lt(0).logical_or_(local_experts.ge(range.count)), range.count);
  }
  auto [sorted, pair] = local_experts.sort(/*stable=*/true, 0, false);
  if (range.padded) return padded_order(sorted, pair, experts.size(1), range);
  const Tensor ends = at::searchsorted(sorted, at::arange(1, range.count + 1, options));
  Tensor counts = ends.clone();
  counts.narrow(0, 1, range.count - 1).sub_(ends.narrow(0, 0, range.count - 1));
  if (!all) pair = pair.narrow(0, 0, ends[range.count - 1].item<std::int64_t>()).clone();
  Tensor row_of_pair = at::full({pairs}, -1, options);
  row_of_pair.scatter_(0, pair, at::arange(pair.size(0), options));
  return {pair.div(experts.size(1), "floor"), pair, row_of_pair.view(experts.sizes()), counts};
}

Tensor permute(const Tensor& x, const PermuteMap& order) {
  COL_CHECK(x.dim() == 2 && x.size(0) == order.row_of_pair.size(0),
            "input of permute must be [{}, h]; got {}", order.row_of_pair.size(0), c10::str(x.sizes()));
  return PermuteFunction::apply(x.contiguous(), order);
}

Tensor unpermute(const Tensor& rows, const Tensor& weights, const PermuteMap& order) {
  COL_CHECK(
      rows.dim() == 2 && rows.size(0) == order.token.size(0) &&
          weights.sizes() == order.row_of_pair.sizes() &&
          weights.scalar_type() == acc_type(rows.scalar_type()),
      "inputs of unpermute must be rows [{}, h] and weights {} in the accumulation dtype; got {} and {} {}",
      order.token.size(0), c10::str(order.row_of_pair.sizes()), c10::str(rows.sizes()),
      c10::toString(weights.scalar_type()), c10::str(weights.sizes()));
  return UnpermuteFunction::apply(rows.contiguous(), weights.contiguous(), order);
}

}  // namespace colonnade::ops
