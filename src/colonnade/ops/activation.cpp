// Autograd function of the activations; the arithmetic is in kernels/activation.
#include "colonnade/ops/activation.h"

#include "colonnade/kernels/activation.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/column_sum.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

kernels::ActivationKind kernel_kind(config::Activation kind) {
  using From = config::Activation;
  using To = kernels::ActivationKind;
  switch (kind) {
    case From::kGeluErf:
      return To::kGeluErf;
    case From::kGeluTanh:
      return To::kGeluTanh;
    case From::kSquaredRelu:
      return To::kSquaredRelu;
    case From::kSwiglu:
      return To::kSwiglu;
    case From::kGeglu:
      return To::kGeglu;
    case From::kGegluTanh:
      return To::kGegluTanh;
    case From::kQuickGeglu:
      return To::kQuickGeglu;
    case From::kRelu:
      return To::kRelu;
  }
  COL_CHECK(false, "activation must be one of config::Activation; got {}", static_cast<int>(kind));
}

struct ActivationArgs {
  tensor::Parameter* bias;
  kernels::ActivationKind kind;
  kernels::GluParams glu;
};

struct ActivationFunction : torch::autograd::Function<ActivationFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_in, const MaybeTensor& bias_in,
                        const ActivationArgs& args) {
    const Tensor bias = bias_in.value_or(Tensor());
    const Tensor x = x_in.contiguous();
    std::vector<std::int64_t> shape = x.sizes().vec();
    if (is_gated(args.kind)) shape.back() /= 2;
    const Tensor y = at::empty(shape, x.options());
    const std::int64_t cols = shape.back();
    with_float_type(x.scalar_type(), [&]<typename T>() {
      launch(y, kernels::cpu::activation<T>, kernels::cuda::activation<T>,
             kernels::Activation<T>{args.kind, in<T>(x), in<T>(bias), out<T>(y),
                                    cols > 0 ? y.numel() / cols : 0, cols, args.glu});
    });
    ctx->save_for_backward({x, bias});
    save_value(ctx, args);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& x = saved[0];
    const auto args = saved_value<ActivationArgs>(ctx);
    const Tensor grad_y = grads[0].contiguous();
    const Tensor grad_x = at::empty_like(x);
    const std::int64_t cols = grad_y.size(-1);
    with_float_type(x.scalar_type(), [&]<typename T>() {
      launch(grad_y, kernels::cpu::activation_grad<T>, kernels::cuda::activation_grad<T>,
             kernels::ActivationGrad<T>{args.kind, in<T>(x), in<T>(saved[1]), in<T>(grad_y), out<T>(grad_x),
                                        cols > 0 ? grad_y.numel() / cols : 0, cols, args.glu});
    });
    if (args.bias != nullptr) args.bias->accumulate(column_sum(grad_x));
    return {grad_x, Tensor(), Tensor()};
  }
};

}  // namespace

ActivationKind::ActivationKind(const config::Model& model)
    : kind(model.activation),
      bound(model.activation_func_clamp_value.value_or(std::numeric_limits<double>::infinity())),
      offset(model.glu_linear_offset) {}

Tensor activate(const Tensor& x, tensor::Parameter* bias, const ActivationKind& kind) {
  const ActivationArgs args{bias, kernel_kind(kind.kind), {kind.bound, kind.offset}};
  COL_CHECK(x.dim() > 0 && (!is_gated(args.kind) || x.size(-1) % 2 == 0),
            "input of a gated activation must have an even last dimension; got x {}", c10::str(x.sizes()));
  const Tensor bias_value = value_of(bias);
  COL_CHECK(
      bias == nullptr || (bias_value.numel() == x.size(-1) && bias_value.scalar_type() == x.scalar_type()),
      "activation bias must have the dtype and last dimension of x; got x {} {} and bias {} {}",
      c10::str(x.sizes()), c10::toString(x.scalar_type()), c10::str(bias_value.sizes()),
      c10::toString(bias_value.scalar_type()));
  return ActivationFunction::apply(x, maybe(bias_value), args);
}

}  // namespace colonnade::ops
