// See linear.h. x2 and y2 are activations as matrices [s * b, features].
#include "colonnade/layers/linear.h"

#include "colonnade/base/error.h"
#include "colonnade/layers/regions.h"
#include "colonnade/ops/column_sum.h"
#include "colonnade/ops/product.h"
#include "colonnade/tensor/kept.h"

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

struct ColumnProduct : torch::autograd::Function<ColumnProduct> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b, const ColumnLinear* layer) {
    ctx->save_for_backward({x});
    tensor::keep(ctx, layer);
    const at::Tensor whole =
        layer->sequence_parallel ? gather_sequence(x, layer->tp, layer->weight->spec.name) : x;
    const at::Tensor y2 = ops::product(ops::as_rows(whole), w, b);
    return y2.view(shape_of(x, whole.size(0), w.size(0)));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto& layer = *tensor::kept<const ColumnLinear*>(ctx);
    const comm::Group& tp = layer.tp;
    const std::string& name = layer.weight->spec.name;
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor dy2 = ops::as_rows(grads[0]).contiguous();

    at::Tensor whole = x;
    comm::Work gathered;
    if (layer.sequence_parallel && tp.size() > 1) {
      whole = at::empty(shape_of(x, x.size(0) * tp.size(), x.size(-1)), x.options());
      gathered = tp.all_gather(whole, x.contiguous(), name);
    }
    at::Tensor dx;
    comm::Work reduced;
    if (ctx->needs_input_grad(0)) {
      dx = ops::product_input_grad(dy2, layer.weight->value.detach()).view(whole.sizes());
      if (layer.sequence_parallel && tp.size() > 1) {
        const at::Tensor partial = dx;
        dx = at::empty_like(x, at::MemoryFormat::Contiguous);
        reduced = tp.reduce_scatter(dx, partial, name);
      } else {
        reduced = tp.all_reduce(dx, name);
      }
    }
    gathered.wait();
    layer.weight->accumulate_product(dy2, ops::as_rows(whole));
    if (layer.bias && layer.add_bias) layer.bias->accumulate(ops::column_sum(dy2));
    reduced.wait();
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct RowProduct : torch::autograd::Function<RowProduct> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            const RowLinear* layer) {
    ctx->save_for_backward({x});
    tensor::keep(ctx, layer);
    const std::string& name = layer->weight->spec.name;
    at::Tensor y = ops::product(ops::as_rows(x), w).view(shape_of(x, x.size(0), w.size(0)));
    if (layer->sequence_parallel) return reduce_scatter_sequence(y, layer->tp, name);
    layer->tp.all_reduce(y, name).wait();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto& layer = *tensor::kept<const RowLinear*>(ctx);
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor dy =
        layer.sequence_parallel ? gather_sequence(grads[0], layer.tp, layer.weight->spec.name) : grads[0];
    const at::Tensor dy2 = ops::as_rows(dy).contiguous();
    at::Tensor dx;
    if (ctx->needs_input_grad(0))
      dx = ops::product_input_grad(dy2, layer.weight->value.detach()).view(x.sizes());
    layer.weight->accumulate_product(dy2, ops::as_rows(x));
    return {dx, at::Tensor(), at::Tensor()};
  }
};

void check_input(const char* kind, const at::Tensor& x, const tensor::Parameter& weight) {
  COL_CHECK(x.size(-1) == weight.value.size(1), "{} {}: the last dimension of x must be {}; got x {}", kind,
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
  const auto added = bias && add_bias ? std::optional<at::Tensor>(bias->value) : std::nullopt;
  return ColumnProduct::apply(x, weight->value, added, this);
}

RowLinear::RowLinear(const layout::ParamSpec& weight_spec, const std::optional<layout::ParamSpec>& bias_spec,
                     const Context& context)
    : weight(context.make(weight_spec)),
      bias(context.make(bias_spec)),
      tp(context.tp),
      sequence_parallel(context.sequence_parallel) {}

at::Tensor RowLinear::forward(const at::Tensor& x) const {
  check_input("RowLinear", x, *weight);
  return RowProduct::apply(x, weight->value, this);
}

}  // namespace colonnade::layers
