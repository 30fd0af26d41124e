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

struct ForAllHeads : torch::autograd::Function<ForAllHeads> {
  static constexpr const char* kName = "what all heads share";
  struct Kept {
    comm::Group tp;
    bool by_sequence;
  };
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const comm::Group& tp,
                            bool by_sequence) {
    tensor::keep(ctx, Kept{tp, by_sequence});
    return by_sequence ? gather_sequence(x, tp, kName) : x.view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto [tp, by_sequence] = tensor::kept<Kept>(ctx);
    if (by_sequence) return {reduce_scatter_sequence(grads[0], tp, kName), at::Tensor(), at::Tensor()};
    const at::Tensor sum = grads[0].contiguous().clone();
    tp.all_reduce(sum, kName).wait();
    return {sum, at::Tensor(), at::Tensor()};
  }
};

struct FirstRow : torch::autograd::Function<FirstRow> {
  struct Kept {
    std::vector<std::int64_t> shape;
    bool is_here;
  };
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const comm::Group& tp,
                            bool by_sequence) {
    tensor::keep(ctx, Kept{x.sizes().vec(), !by_sequence || tp.rank() == 0});
    const at::Tensor row = x.select(0, 0).clone(at::MemoryFormat::Contiguous);
    if (by_sequence && tp.size() > 1) tp.broadcast(row, 0, "first token").wait();
    return row;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto [shape, is_here] = tensor::kept<Kept>(ctx);
    const at::Tensor grad = at::zeros(shape, grads[0].options());
    if (is_here) grad.select(0, 0).copy_(grads[0]);
    return {grad, at::Tensor(), at::Tensor()};
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

at::Tensor for_all_heads(const at::Tensor& x, const comm::Group& tp, bool by_sequence) {
  return tp.size() == 1 ? x : ForAllHeads::apply(x, tp, by_sequence);
}
at::Tensor reduce_partial(const at::Tensor& x, const comm::Group& tp) {
  return tp.size() == 1 ? x : ReducePartial::apply(x, tp);
}
at::Tensor scatter_partial(const at::Tensor& x, const comm::Group& tp) {
  return tp.size() == 1 ? x : ScatterPartial::apply(x, tp);
}
at::Tensor first_row(const at::Tensor& x, const comm::Group& tp, bool by_sequence) {
  return FirstRow::apply(x, tp, by_sequence);
}

}  // namespace colonnade::layers
