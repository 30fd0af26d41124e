// See mappings.h.
#include "colonnade/layers/mappings.h"

#include "colonnade/base/error.h"
#include "colonnade/tensor/saved_value.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<std::int64_t> with_sequence(const at::Tensor& x, std::int64_t s) {
  auto shape = x.sizes().vec();
  shape[0] = s;
  return shape;
}

struct ReduceFromTpRegion : torch::autograd::Function<ReduceFromTpRegion> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, const comm::Group& tp) {
    at::Tensor sum = x.contiguous().clone();
    tp.all_reduce(sum, "sum of partial activations").wait();
    return sum;
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0], at::Tensor()};
  }
};

struct ReduceScatterToSpRegion : torch::autograd::Function<ReduceScatterToSpRegion> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const comm::Group& tp) {
    tensor::save_value(ctx, tp);
    return reduce_scatter_sequence(x, tp, "sum of partial activations, sharded by sequence");
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto tp = tensor::saved_value<comm::Group>(ctx);
    return {gather_sequence(grads[0], tp, "gradient of activations sharded by sequence"), at::Tensor()};
  }
};

struct EnterTpRegion : torch::autograd::Function<EnterTpRegion> {
  static constexpr const char* kName = "input of a tensor-parallel region";
  struct Saved {
    comm::Group tp;
    bool sequence_parallel;
  };
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const comm::Group& tp,
                            bool sequence_parallel) {
    tensor::save_value(ctx, Saved{tp, sequence_parallel});
    return sequence_parallel ? gather_sequence(x, tp, kName) : x.view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto [tp, sequence_parallel] = tensor::saved_value<Saved>(ctx);
    if (sequence_parallel) return {reduce_scatter_sequence(grads[0], tp, kName), at::Tensor(), at::Tensor()};
    const at::Tensor sum = grads[0].contiguous().clone();
    tp.all_reduce(sum, kName).wait();
    return {sum, at::Tensor(), at::Tensor()};
  }
};

struct FirstToken : torch::autograd::Function<FirstToken> {
  struct Saved {
    std::vector<std::int64_t> shape;
    bool holds_row;
  };
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const comm::Group& tp,
                            bool sequence_parallel) {
    tensor::save_value(ctx, Saved{x.sizes().vec(), !sequence_parallel || tp.rank() == 0});
    const at::Tensor row = x.select(0, 0).clone(at::MemoryFormat::Contiguous);
    if (sequence_parallel && tp.size() > 1) tp.broadcast(row, 0, "first token").wait();
    return row;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto [shape, holds_row] = tensor::saved_value<Saved>(ctx);
    const at::Tensor grad = at::zeros(shape, grads[0].options());
    if (holds_row) grad.select(0, 0).copy_(grads[0]);
    return {grad, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor gather_sequence(const at::Tensor& x, const comm::Group& tp, std::string_view what) {
  if (tp.size() == 1) return x;
  at::Tensor full = at::empty(with_sequence(x, x.size(0) * tp.size()), x.options());
  tp.all_gather(full, x.contiguous(), what).wait();
  return full;
}

at::Tensor reduce_scatter_sequence(const at::Tensor& x, const comm::Group& tp, std::string_view what) {
  if (tp.size() == 1) return x;
  COL_CHECK(x.size(0) % tp.size() == 0,
            "{}: sequence length must divide by the tensor-parallel size; got {} and {}", what, x.size(0),
            tp.size());
  at::Tensor shard = at::empty(with_sequence(x, x.size(0) / tp.size()), x.options());
  tp.reduce_scatter(shard, x.contiguous(), what).wait();
  return shard;
}

at::Tensor enter_tp_region(const at::Tensor& x, const comm::Group& tp, bool sequence_parallel) {
  return tp.size() == 1 ? x : EnterTpRegion::apply(x, tp, sequence_parallel);
}
at::Tensor reduce_from_tp_region(const at::Tensor& x, const comm::Group& tp) {
  return tp.size() == 1 ? x : ReduceFromTpRegion::apply(x, tp);
}
at::Tensor reduce_scatter_to_sp_region(const at::Tensor& x, const comm::Group& tp) {
  return tp.size() == 1 ? x : ReduceScatterToSpRegion::apply(x, tp);
}
at::Tensor first_token(const at::Tensor& x, const comm::Group& tp, bool sequence_parallel) {
  return FirstToken::apply(x, tp, sequence_parallel);
}

}  // namespace colonnade::layers
