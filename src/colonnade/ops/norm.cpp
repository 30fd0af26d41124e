// Autograd function of the norms; the arithmetic is in kernels/norm.
#include "colonnade/ops/norm.h"

#include "colonnade/kernels/norm.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

struct NormArgs {
  tensor::Parameter* weight;  ///< null: gamma is 1
  tensor::Parameter* bias;
  double eps;
  bool zero_centered;
  bool centered;  ///< LayerNorm
};

/// The given gamma; without one, ones for the rows of `x`.
Tensor gamma_of(const Tensor& weight, const Tensor& x) {
  return weight.defined() ? weight : at::ones({x.size(-1)}, x.options());
}

/// `x` is the residual stream; `added` a mixer's output that is added to it first. Outputs: normed, then sum
/// if there is such an output.
struct NormFunction : torch::autograd::Function<NormFunction> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x_in, const MaybeTensor& added_in,
                               const MaybeTensor& weight_in, const MaybeTensor& bias_in,
                               const NormArgs& args) {
    const Tensor x = x_in.contiguous();
    const Tensor gamma = gamma_of(weight_in.value_or(Tensor()), x);
    const Tensor added = contiguous(added_in.value_or(Tensor()));
    const Tensor bias = bias_in.value_or(Tensor());
    const std::int64_t cols = x.size(-1);
    const std::int64_t rows = cols > 0 ? x.numel() / cols : 0;
    const auto stats = x.options().dtype(acc_type(x.scalar_type()));
    const Tensor y = at::empty_like(x, gamma.scalar_type());
    const Tensor sum = added.defined() ? at::empty_like(x) : Tensor();
    const Tensor mean = args.centered ? at::empty({rows}, stats) : Tensor();
    const Tensor rstd = at::empty({rows}, stats);
    with_stream_types(gamma.scalar_type(), x.scalar_type(), [&]<typename T, typename S>() {
      using A = kernels::Acc<T>;
      launch(x, kernels::cpu::norm<T, S>, kernels::cuda::norm<T, S>,
             kernels::Norm<T, S>{in<S>(x), in<T>(added), in<T>(gamma), in<T>(bias), out<S>(sum), out<T>(y),
                                 out<A>(mean), out<A>(rstd), rows, cols, args.eps, args.zero_centered});
    });
    ctx->save_for_backward({sum.defined() ? sum : x, weight_in.value_or(Tensor()), mean, rstd});
    save_value(ctx, args);
    ctx->set_materialize_grads(false);
    return sum.defined() ? variable_list{y, sum} : variable_list{y};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &mean = saved[2], &rstd = saved[3];
    const auto args = saved_value<NormArgs>(ctx);
    const Tensor grad_y = contiguous(grads[0]);
    const Tensor grad_sum = grads.size() > 1 ? contiguous(grads[1]) : Tensor();
    const Tensor gamma = gamma_of(saved[1], x);
    const auto grad_added = [&gamma](const Tensor& grad) { return grad.to(gamma.scalar_type()); };
    if (!grad_y.defined())
      return {grad_sum, grad_sum.defined() ? grad_added(grad_sum) : Tensor(), Tensor(), Tensor(), Tensor()};
    const std::int64_t cols = x.size(-1);
    const std::int64_t rows = cols > 0 ? x.numel() / cols : 0;
    const auto sums = x.options().dtype(acc_type(x.scalar_type()));
    const Tensor grad_x = at::empty_like(x);
    const Tensor grad_weight = at::empty({cols}, sums);
    const Tensor grad_bias = args.bias != nullptr ? at::empty({cols}, sums) : Tensor();
    const Tensor partial = at::empty({2 * kernels::column_blocks(rows) * cols}, sums);
    with_stream_types(gamma.scalar_type(), x.scalar_type(), [&]<typename T, typename S>() {
      using A = kernels::Acc<T>;
      launch(x, kernels::cpu::norm_grad<T, S>, kernels::cuda::norm_grad<T, S>,
             kernels::NormGrad<T, S>{in<S>(x), in<T>(gamma), in<A>(mean), in<A>(rstd), in<T>(grad_y),
                                     in<S>(grad_sum), out<S>(grad_x), out<A>(grad_weight), out<A>(grad_bias),
                                     out<A>(partial), rows, cols, args.zero_centered});
    });
    if (x.numel() == 0) grad_weight.zero_();
    if (args.weight != nullptr) args.weight->accumulate(grad_weight);
    if (args.bias != nullptr) args.bias->accumulate(x.numel() == 0 ? grad_bias.zero_() : grad_bias);
    return {grad_x, grads.size() > 1 ? grad_added(grad_x) : Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

variable_list apply(const Tensor& x, const Tensor& added, const NormArgs& args) {
  const Tensor& weight = args.weight->value;
  COL_CHECK(
      x.dim() > 0 && weight.dim() == 1 && x.size(-1) == weight.size(0) &&
          is_stream_of(weight.scalar_type(), x.scalar_type()),
      "norm input must have the length of the weight and its dtype or fp32; got x {} {} and weight {} {}",
      c10::str(x.sizes()), c10::toString(x.scalar_type()), c10::str(weight.sizes()),
      c10::toString(weight.scalar_type()));
  COL_CHECK(!added.defined() || (added.sizes() == x.sizes() && added.scalar_type() == weight.scalar_type()),
            "norm residual must have the shape of x, and x the dtype of the weight; got {} {} and {} {}",
            c10::str(x.sizes()), c10::toString(x.scalar_type()), c10::str(added.sizes()),
            c10::toString(added.scalar_type()));
  return NormFunction::apply(x, maybe(added), maybe(weight), maybe(value_of(args.bias)), args);
}

}  // namespace

Tensor rms_norm(const Tensor& x, double eps) {
  COL_CHECK(x.dim() > 0, "norm input must have a dimension; got a scalar");
  return NormFunction::apply(x, maybe(Tensor()), maybe(Tensor()), maybe(Tensor()),
                             NormArgs{nullptr, nullptr, eps, false, false})[0];
}

Tensor rms_norm(const Tensor& x, tensor::Parameter& weight, double eps, bool zero_centered) {
  return apply(x, Tensor(), {&weight, nullptr, eps, zero_centered, false})[0];
}

Tensor layer_norm(const Tensor& x, tensor::Parameter& weight, tensor::Parameter* bias, double eps,
                  bool zero_centered) {
  return apply(x, Tensor(), {&weight, bias, eps, zero_centered, true})[0];
}

AddNormOutput add_rms_norm(const Tensor& x, const Tensor& residual, tensor::Parameter& weight, double eps,
                           bool zero_centered) {
  const variable_list both = apply(residual, x, {&weight, nullptr, eps, zero_centered, false});
  return {both[1], both[0]};
}

AddNormOutput add_layer_norm(const Tensor& x, const Tensor& residual, tensor::Parameter& weight,
                             tensor::Parameter* bias, double eps, bool zero_centered) {
  const variable_list both = apply(residual, x, {&weight, bias, eps, zero_centered, true});
  return {both[1], both[0]};
}

}  // namespace colonnade::ops
