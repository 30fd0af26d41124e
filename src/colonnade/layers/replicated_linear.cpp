// See replicated_linear.h.
#include "colonnade/layers/replicated_linear.h"

#include "colonnade/base/error.h"
#include "colonnade/ops/column_sum.h"
#include "colonnade/ops/linear.h"
#include "colonnade/tensor/dtypes.h"
#include "colonnade/tensor/saved_value.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Parameters of a product and the dtype in which it is computed.
struct Product {
  tensor::Parameter* weight;
  tensor::Parameter* bias;
  at::ScalarType dtype;
};

struct ReplicatedLinearFunction : torch::autograd::Function<ReplicatedLinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b, const Product& product) {
    ctx->save_for_backward({x});
    tensor::save_value(ctx, product);
    auto shape = x.sizes().vec();
    shape.back() = w.size(0);
    const auto bias = b ? std::optional(b->to(product.dtype)) : std::nullopt;
    return ops::linear_forward(ops::as_rows(x).to(product.dtype), w.to(product.dtype), bias).view(shape);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto [weight, bias, dtype] = tensor::saved_value<Product>(ctx);
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor dy2 = ops::as_rows(grads[0]).contiguous();
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      const at::Tensor w = weight->value.detach().to(dtype);
      dx = ops::linear_input_grad(dy2, w).to(x.scalar_type()).view(x.sizes());
    }
    if (bias != nullptr) bias->accumulate(ops::column_sum(dy2));
    weight->accumulate_weight_grad(dy2, ops::as_rows(x).to(dtype));
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor forward_in_dtype(const at::Tensor& x, tensor::Parameter& weight, tensor::Parameter* bias,
                            at::ScalarType dtype) {
  const auto bias_value = bias != nullptr ? std::optional(bias->value) : std::nullopt;
  return ReplicatedLinearFunction::apply(x, weight.value, bias_value, Product{&weight, bias, dtype});
}

}  // namespace

ReplicatedLinear::ReplicatedLinear(const layout::ParamSpec& spec, const Context& context)
    : weight(context.make(spec)) {}

ReplicatedLinear::ReplicatedLinear(const layout::LinearParams& params, const Context& context)
    : weight(context.make(params.weight)), bias(context.make(params.bias)) {}

void ReplicatedLinear::add_parameters(std::vector<tensor::Parameter*>& all) const {
  collect(all, {weight.get(), bias.get()});
}

at::Tensor ReplicatedLinear::forward(const at::Tensor& x) const {
  COL_CHECK(x.size(-1) == weight->value.size(1),
            "ReplicatedLinear {}: last dimension of x must be {}; got x {}", weight->spec.name,
            weight->value.size(1), x.sizes());
  return forward_in_dtype(x, *weight, bias.get(), weight->value.scalar_type());
}

at::Tensor fp32_linear(const at::Tensor& x, tensor::Parameter& weight, tensor::Parameter* bias) {
  return forward_in_dtype(x, weight, bias, tensor::acc_type(x.scalar_type()));
}

}  // namespace colonnade::layers
