// See wide_product.h.
#include "colonnade/layers/moe/wide_product.h"

#include "colonnade/ops/product.h"
#include "colonnade/tensor/kept.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Parameters {
  tensor::Parameter* weight;
  tensor::Parameter* bias;
};

struct WideProduct : torch::autograd::Function<WideProduct> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b, const Parameters& of) {
    ctx->save_for_backward({x});
    tensor::keep(ctx, of);
    const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return ops::product(x.to(wide), w.to(wide), b ? std::optional(b->to(wide)) : std::nullopt);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto [weight, bias] = tensor::kept<Parameters>(ctx);
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      const at::Tensor w = weight->value.detach().to(dy.scalar_type());
      dx = ops::product_input_grad(dy, w).to(x.scalar_type());
    }
    weight->accumulate_product(dy, x.to(dy.scalar_type()));
    if (bias != nullptr) bias->accumulate(dy.sum(0));
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor wide_product(const at::Tensor& x, tensor::Parameter& weight, tensor::Parameter* bias) {
  const auto added = bias != nullptr ? std::optional(bias->value) : std::nullopt;
  return WideProduct::apply(x, weight.value, added, Parameters{&weight, bias});
}

}  // namespace colonnade::layers
