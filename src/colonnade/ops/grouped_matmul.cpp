// See grouped_matmul.h.
#include "colonnade/ops/grouped_matmul.h"

#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/linear.h"

namespace colonnade::ops {
namespace {

struct GroupedArgs {
  std::vector<std::int64_t> rows;
  tensor::Parameter* weight;
  GroupedBias bias;
};

/// Whether one grouped kernel applies: bf16 on CUDA, at least one row, row sizes divisible by 16 bytes.
bool use_grouped_kernel(const Tensor& x, const Tensor& w) {
  return x.is_cuda() && x.scalar_type() == at::kBFloat16 && x.size(0) > 0 && w.size(1) % 8 == 0 &&
         w.size(2) % 8 == 0;
}

/// End of each expert's rows, as the grouped kernel expects it.
Tensor group_ends(const std::vector<std::int64_t>& rows, const at::Device& device) {
  std::vector<std::int32_t> ends(rows.size());
  std::int64_t end = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) ends[e] = static_cast<std::int32_t>(end += rows[e]);
  return at::tensor(ends, at::dtype(at::kInt)).to(device, /*non_blocking=*/true);
}

/// Concatenates one(rows of expert e, its matrix) over the experts with rows.
template <typename One>
Tensor map_experts(const Tensor& x, const std::vector<std::int64_t>& rows, const Tensor& weight,
                   std::int64_t columns, const One& fn) {
  Tensor all;
  if (x.is_meta() || x.size(0) == 0) return at::empty({x.size(0), columns}, x.options());
  std::int64_t begin = 0;
  for (std::size_t e = 0; e < rows.size(); begin += rows[e++]) {
    if (rows[e] == 0) continue;
    const Tensor y_e = fn(x.narrow(0, begin, rows[e]), weight[static_cast<std::int64_t>(e)]);
    if (rows[e] == x.size(0)) return y_e;
    if (!all.defined()) all = at::empty({x.size(0), columns}, x.options());
    all.narrow(0, begin, rows[e]).copy_(y_e);
  }
  return all;
}

void add_weight_gradient(const Tensor& dy, const Tensor& x, const std::vector<std::int64_t>& rows,
                         tensor::Parameter& weight) {
  if (use_grouped_kernel(x, weight.value))
    return weight.accumulate(at::_grouped_mm(dy.t(), x, group_ends(rows, x.device())));
  const Tensor& grad = weight.main_grad_for_add();
  if (x.is_meta()) {
    if (dy.scalar_type() != grad.scalar_type()) at::empty(grad.sizes().slice(1), dy.options());
    return;
  }
  std::int64_t begin = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    const std::int64_t n = rows[e];
    Tensor grad_e = grad[static_cast<std::int64_t>(e)];
    const Tensor dy_e = dy.narrow(0, begin, n), x_e = x.narrow(0, begin, n);
    if (n > 0 && dy.scalar_type() == grad_e.scalar_type())
      grad_e.addmm_(dy_e.t(), x_e);
    else if (n > 0)
      grad_e.add_(at::mm(dy_e.t(), x_e));
    begin += n;
  }
}

/// Calls use(rows of expert e, e) for each expert with rows.
template <typename Use>
void for_each_expert(const Tensor& rows, const std::vector<std::int64_t>& counts, const Use& use) {
  std::int64_t begin = 0;
  for (std::size_t e = 0; e < counts.size(); begin += counts[e++])
    if (counts[e] > 0) use(rows.narrow(0, begin, counts[e]), static_cast<std::int64_t>(e));
}

void add_bias_gradient(const Tensor& dy, const GroupedArgs& args) {
  const Tensor& grad = args.bias.bias->main_grad_for_add();
  if (dy.is_meta()) return;
  for_each_expert(dy, args.rows, [&](const Tensor& dy_e, std::int64_t e) {
    grad[e].add_(dy_e.sum(0, false, grad.scalar_type()));
  });
}

struct GroupedMatmulFunction : torch::autograd::Function<GroupedMatmulFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w, const MaybeTensor& b,
                        const GroupedArgs& args) {
    ctx->save_for_backward({x});
    save_value(ctx, args);
    const Tensor y = use_grouped_kernel(x, w)
                         ? at::_grouped_mm(x, w.transpose(1, 2), group_ends(args.rows, x.device()))
                         : map_experts(x, args.rows, w, w.size(1), [](const Tensor& x_e, const Tensor& w_e) {
                             return linear_forward(x_e, w_e);
                           });
    if (b && args.bias.add_in_forward && !y.is_meta())
      for_each_expert(y, args.rows, [&](const Tensor& y_e, std::int64_t e) { y_e.add_((*b)[e]); });
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::NoGradGuard no_grad;
    const auto args = saved_value<GroupedArgs>(ctx);
    const Tensor x = ctx->get_saved_variables()[0];
    const Tensor dy = grads[0].contiguous();
    const Tensor w = args.weight->value.detach();
    Tensor dx;
    if (ctx->needs_input_grad(0))
      dx = use_grouped_kernel(x, w)
               ? at::_grouped_mm(dy, w, group_ends(args.rows, x.device()))
               : map_experts(dy, args.rows, w, w.size(2), [](const Tensor& dy_e, const Tensor& w_e) {
                   return linear_input_grad(dy_e, w_e);
                 });
    args.weight->add_weight_grad([dy = dy.detach(), x = x.detach(), rows = args.rows, weight = args.weight] {
      add_weight_gradient(dy, x, rows, *weight);
    });
    if (args.bias.bias != nullptr) add_bias_gradient(dy, args);
    return {dx, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor grouped_matmul(const Tensor& x, const std::vector<std::int64_t>& rows, tensor::Parameter& weight,
                      const GroupedBias& bias) {
  const Tensor& w = weight.value;
  COL_CHECK(x.dim() == 2 && w.dim() == 3 && x.size(1) == w.size(2) &&
                static_cast<std::int64_t>(rows.size()) == w.size(0) &&
                std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == x.size(0),
            "input of {} must be [n, {}] with row counts for {} experts; got {} and {} counts",
            weight.spec.name, w.size(2), w.size(0), c10::str(x.sizes()), rows.size());
  const Tensor b = value_of(bias.bias);
  COL_CHECK(!b.defined() || (b.dim() == 2 && b.size(0) == w.size(0) && b.size(1) == w.size(1)),
            "biases of {} must be [{}, {}]; got {}", weight.spec.name, w.size(0), w.size(1),
            c10::str(b.sizes()));
  return GroupedMatmulFunction::apply(x.contiguous(), w, maybe(b), GroupedArgs{rows, &weight, bias});
}

}  // namespace colonnade::ops
