// See regions.h.
#include "colonnade/layers/regions.h"

#include <memory>

#include "colonnade/base/error.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Group values travel in the autograd context as capsules.
struct GroupHolder final : torch::CustomClassHolder {
  explicit GroupHolder(comm::Group value) : group(std::move(value)) {}
  comm::Group group;
};
void save_group(AutogradContext* ctx, const comm::Group& group) {
  ctx->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(group));
}
const comm::Group& saved_group(AutogradContext* ctx) {
  return c10::static_intrusive_pointer_cast<GroupHolder>(ctx->saved_data["group"].toCapsule())->group;
}

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
    save_group(ctx, tp);
    return reduce_scatter_sequence(x, tp, "sum of partial activations, cut by sequence");
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {gather_sequence(grads[0], saved_group(ctx), "gradient of activations cut by sequence"),
            at::Tensor()};
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
