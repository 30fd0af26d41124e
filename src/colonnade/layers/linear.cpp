// See linear.h. x2 and y2 are activations as matrices [s * b, features].
#include "colonnade/layers/linear.h"

#include "colonnade/base/error.h"
#include "colonnade/layers/mappings.h"
#include "colonnade/ops/column_sum.h"
#include "colonnade/ops/linear.h"
#include "colonnade/tensor/saved_value.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<std::int64_t> shape_of(const at::Tensor& x, std::int64_t sequence, std::int64_t features) {
  auto shape = x.sizes().vec();
  shape.front() = sequence;
  shape.back() = features;
  return shape;
}

struct ColumnLinearFunction : torch::autograd::Function<ColumnLinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b, const ColumnLinear* layer) {
    ctx->save_for_backward({x});
    tensor::save_value(ctx, layer);
    const at::Tensor full =
        layer->sequence_parallel ? gather_sequence(x, layer->tp, layer->weight->spec.name) : x;
    const at::Tensor y2 = ops::linear_forward(ops::as_rows(full), w, b);
    return y2.view(shape_of(x, full.size(0), w.size(0)));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto& layer = *tensor::saved_value<const ColumnLinear*>(ctx);
    const comm::Group& tp = layer.tp;
    const std::string& name = layer.weight->spec.name;
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor dy2 = ops::as_rows(grads[0]).contiguous();

    at::Tensor full = x;
    comm::Work gather;
    if (layer.sequence_parallel && tp.size() > 1) {
      full = at::empty(shape_of(x, x.size(0) * tp.size(), x.size(-1)), x.options());
      gather = tp.all_gather(full, x.contiguous(), name);
    }
    at::Tensor dx;
    comm::Work reduce;
    if (ctx->needs_input_grad(0)) {
      dx = ops::linear_input_grad(dy2, layer.weight->value.detach()).view(full.sizes());
      if (layer.sequence_parallel && tp.size() > 1) {
        const at::Tensor partial = dx;
        dx = at::empty_like(x, at::MemoryFormat::Contiguous);
        reduce = tp.reduce_scatter(dx, partial, name);
      } else {
        reduce = tp.all_reduce(dx, name);
      }
    }
    gather.wait();
    layer.weight->accumulate_weight_grad(dy2, ops::as_rows(full));
    if (layer.bias && layer.add_bias) layer.bias->accumulate(ops::column_sum(dy2));
    reduce.wait();
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct RowLinearFunction : torch::autograd::Function<RowLinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            const RowLinear* layer) {
    ctx->save_for_backward({x});
    tensor::save_value(ctx, layer);
    const std::string& name = layer->weight->spec.name;
    at::Tensor y = ops::linear_forward(ops::as_rows(x), w).view(shape_of(x, x.size(0), w.size(0)));
    if (layer->sequence_parallel) return reduce_scatter_sequence(y, layer->tp, name);
    layer->tp.all_reduce(y, name).wait();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto& layer = *tensor::saved_value<const RowLinear*>(ctx);
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor dy =
        layer.sequence_parallel ? gather_sequence(grads[0], layer.tp, layer.weight->spec.name) : grads[0];
    const at::Tensor dy2 = ops::as_rows(dy).contiguous();
    at::Tensor dx;
    if (ctx->needs_input_grad(0))
      dx = ops::linear_input_grad(dy2, layer.weight->value.detach()).view(x.sizes());
    layer.weight->accumulate_weight_grad(dy2, ops::as_rows(x));
    return {dx, at::Tensor(), at::Tensor()};
  }
};

void check_input(const char* kind, const at::Tensor& x, const tensor::Parameter& weight) {
  COL_CHECK(x.size(-1) == weight.value.size(1), "{} {}: last dimension of x must be {}; got x {}", kind,
            weight.spec.name, weight.value.size(1), x.sizes());
}

}  // namespace

ColumnLinear::ColumnLinear(const layout::ParamSpec& weight_spec,
                           const std::optional<layout::ParamSpec>& bias_spec, const Context& context)
    : weight(context.make(weight_spec)),
      bias(context.make(bias_spec)),
      tp(context.tp),
      sequence_parallel(context.sequence_parallel) {}

at::Tensor ColumnLinear::forward(const at::Tensor& x) const {
  check_input("ColumnLinear", x, *weight);
  const auto added_bias = bias && add_bias ? std::optional<at::Tensor>(bias->value) : std::nullopt;
  return ColumnLinearFunction::apply(x, weight->value, added_bias, this);
}

RowLinear::RowLinear(const layout::ParamSpec& weight_spec, const std::optional<layout::ParamSpec>& bias_spec,
                     const Context& context)
    : weight(context.make(weight_spec)),
      bias(context.make(bias_spec)),
      tp(context.tp),
      sequence_parallel(context.sequence_parallel) {}

at::Tensor RowLinear::forward(const at::Tensor& x) const {
  check_input("RowLinear", x, *weight);
  return RowLinearFunction::apply(x, weight->value, this);
}

}  // namespace colonnade::layers
