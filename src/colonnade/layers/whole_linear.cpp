// See whole_linear.h.
#include "colonnade/layers/whole_linear.h"

#include "colonnade/base/error.h"
#include "colonnade/ops/column_sum.h"
#include "colonnade/ops/product.h"
#include "colonnade/tensor/kept.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Trained {
  tensor::Parameter* weight;
  tensor::Parameter* bias;
};

struct WholeProduct : torch::autograd::Function<WholeProduct> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b, const Trained& trained) {
    ctx->save_for_backward({x});
    tensor::keep(ctx, trained);
    auto shape = x.sizes().vec();
    shape.back() = w.size(0);
    return ops::product(ops::as_rows(x), w, b).view(shape);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto [weight, bias] = tensor::kept<Trained>(ctx);
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor dy2 = ops::as_rows(grads[0]).contiguous();
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) dx = ops::product_input_grad(dy2, weight->value.detach()).view(x.sizes());
    if (bias != nullptr) bias->accumulate(ops::column_sum(dy2));
    weight->accumulate_product(dy2, ops::as_rows(x));
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

WholeLinear::WholeLinear(const layout::ParamSpec& spec, const Context& context)
    : weight(context.make(spec)) {}

WholeLinear::WholeLinear(const layout::LinearParams& params, const Context& context)
    : weight(context.make(params.weight)), bias(context.make(params.bias)) {}

void WholeLinear::add_parameters(std::vector<tensor::Parameter*>& all) const {
  collect(all, {weight.get(), bias.get()});
}

at::Tensor WholeLinear::forward(const at::Tensor& x) const {
  COL_CHECK(x.size(-1) == weight->value.size(1),
            "WholeLinear {}: the last dimension of x must be {}; got x {}", weight->spec.name,
            weight->value.size(1), x.sizes());
  const auto added = bias ? std::optional(bias->value) : std::nullopt;
  return WholeProduct::apply(x, weight->value, added, Trained{weight.get(), bias.get()});
}

}  // namespace colonnade::layers
