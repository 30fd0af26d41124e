// See regions.h.
#include "colonnade/layers/regions.h"

#include "colonnade/base/error.h"
#include "colonnade/tensor/kept.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<std::int64_t> with_sequence(const at::Tensor& x, std::int64_t s) {
  auto shape = x.sizes().vec();
  shape[0] = s;
  return shape;
}

struct ReducePartial : torch::autograd::Function<ReducePartial> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, const comm::Group& tp) {
    at::Tensor sum = x.contiguous().clone();
    tp.all_reduce(sum, "sum of partial activations").wait();
    return sum;
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0], at::Tensor()};
  }
};

struct ScatterPartial : torch::autograd::Function<ScatterPartial> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const comm::Group& tp) {
    tensor::keep(ctx, tp);
    return reduce_scatter_sequence(x, tp, "sum of partial activations, cut by sequence");
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto tp = tensor::kept<comm::Group>(ctx);
    return {gather_sequence(grads[0], tp, "gradient of activations cut by sequence"), at::Tensor()};
  }
};

}  // namespace

at::Tensor gather_sequence(const at::Tensor& x, const comm::Group& tp, std::string_view what) {
  if (tp.size() == 1) return x;
  at::Tensor whole = at::empty(with_sequence(x, x.size(0) * tp.size()), x.options());
  tp.all_gather(whole, x.contiguous(), what).wait();
  return whole;
}

at::Tensor reduce_scatter_sequence(const at::Tensor& x, const comm::Group& tp, std::string_view what) {
  if (tp.size() == 1) return x;
  COL_CHECK(x.size(0) % tp.size() == 0,
            "{}: the sequence must divide by the tensor-parallel size; got {} and {}", what, x.size(0),
            tp.size());
  at::Tensor part = at::empty(with_sequence(x, x.size(0) / tp.size()), x.options());
  tp.reduce_scatter(part, x.contiguous(), what).wait();
  return part;
}

at::Tensor reduce_partial(const at::Tensor& x, const comm::Group& tp) {
  return tp.size() == 1 ? x : ReducePartial::apply(x, tp);
}
at::Tensor scatter_partial(const at::Tensor& x, const comm::Group& tp) {
  return tp.size() == 1 ? x : ScatterPartial::apply(x, tp);
}

}  // namespace colonnade::layers
