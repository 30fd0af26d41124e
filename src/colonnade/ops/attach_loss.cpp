// See attach_loss.h.
#include "colonnade/ops/attach_loss.h"

#include <ATen/ops/full.h>

#include "colonnade/ops/autograd.h"

namespace colonnade::ops {
namespace {

struct SavedLoss {
  at::TensorOptions loss;
  double scale;
};

struct AttachFunction : torch::autograd::Function<AttachFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& loss, double scale) {
    save_value(ctx, SavedLoss{loss.options(), scale});
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto [loss, scale] = saved_value<SavedLoss>(ctx);
    return {grads[0], at::full({}, scale, loss), Tensor()};
  }
};

}  // namespace

Tensor attach_loss(const Tensor& x, const Tensor& loss, double scale) {
  return AttachFunction::apply(x, loss, scale);
}

}  // namespace colonnade::ops
