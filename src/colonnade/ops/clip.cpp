// See clip.h.
#include "colonnade/ops/clip.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace colonnade::ops {
namespace {

struct ClipFunction : torch::autograd::Function<ClipFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, double limit) {
    ctx->save_for_backward({x});
    ctx->saved_data["limit"] = limit;
    return x.clamp(-limit, limit);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const double limit = ctx->saved_data["limit"].toDouble();
    const at::Tensor inside = x.le(limit).bitwise_and(x.ge(-limit));
    return {grads[0].mul(inside), at::Tensor()};
  }
};

}  // namespace

at::Tensor clip(const at::Tensor& x, double limit) { return ClipFunction::apply(x, limit); }

}  // namespace colonnade::ops
