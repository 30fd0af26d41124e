// See wide_product.h.
#include "colonnade/layers/moe/wide_product.h"

#include "colonnade/ops/product.h"
#include "colonnade/tensor/kept.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct WideProduct : torch::autograd::Function<WideProduct> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            tensor::Parameter* weight) {
    ctx->save_for_backward({x});
    tensor::keep(ctx, weight);
    const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return ops::product(x.to(wide), w.to(wide));
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    auto* weight = tensor::kept<tensor::Parameter*>(ctx);
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      const at::Tensor w = weight->value.detach().to(dy.scalar_type());
      dx = ops::product_input_grad(dy, w).to(x.scalar_type());
    }
    weight->accumulate_product(dy, x.to(dy.scalar_type()));
    return {dx, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor wide_product(const at::Tensor& x, tensor::Parameter& weight) {
  return WideProduct::apply(x, weight.value, &weight);
}

}  // namespace colonnade::layers
