// See output_gate.h.
#include "colonnade/ops/output_gate.h"

#include <ATen/ATen.h>

#include "colonnade/base/error.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

/// sigmoid(gate) in the accumulation dtype, in a storage of its own.
Tensor wide_sigmoid(const Tensor& gate) {
  const at::ScalarType wide = acc_type(gate.scalar_type());
  return gate.scalar_type() == wide ? at::sigmoid(gate) : gate.to(wide).sigmoid_();
}

struct OutputGateFunction : torch::autograd::Function<OutputGateFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& gate) {
    ctx->save_for_backward({x, gate});
    return wide_sigmoid(gate).mul_(x).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &gate = saved[1];
    const Tensor sigmoid = wide_sigmoid(gate);
    const Tensor scaled = sigmoid.mul(grads[0]);
    const Tensor grad_x = scaled.to(x.scalar_type());
    // dy/dgate = x s (1 - s), where `scaled` has the factor s already.
    const Tensor product = grad_x.is_same(scaled) ? scaled.mul(x) : scaled.mul_(x);
    return {grad_x, product.mul_(sigmoid.neg_().add_(1)).to(gate.scalar_type())};
  }
};

}  // namespace

Tensor output_gate(const Tensor& x, const Tensor& gate) {
  COL_CHECK(x.sizes() == gate.sizes() && x.scalar_type() == gate.scalar_type(),
            "output gate must have the shape and dtype of the attention output; got {} {} and {} {}",
            c10::str(gate.sizes()), c10::toString(gate.scalar_type()), c10::str(x.sizes()),
            c10::toString(x.scalar_type()));
  return OutputGateFunction::apply(x, gate);
}

}  // namespace colonnade::ops
