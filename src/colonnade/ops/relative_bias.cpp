// See relative_bias.h.
#include "colonnade/ops/relative_bias.h"

#include <ATen/ATen.h>

#include <cmath>

#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

struct RelativeBiasFunction : torch::autograd::Function<RelativeBiasFunction> {
  struct Args {
    tensor::Parameter* table;
    std::int64_t s, t;
    RelativePositionBuckets distances;
  };
  static Tensor forward(AutogradContext* ctx, const Tensor& table, const Args& args) {
    save_value(ctx, args);
    const std::int64_t n = table.size(1);
    if (table.is_meta()) return at::empty({1, n, args.s, args.t}, table.options());
    const Tensor buckets = relative_position_buckets(args.s, args.t, args.distances, table.device());
    return table.t().index_select(1, buckets.view(-1)).view({1, n, args.s, args.t});
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto args = saved_value<Args>(ctx);
    tensor::Parameter& table = *args.table;
    if (table.value.is_meta()) {
      table.accumulate(at::empty_like(table.value));
      return {Tensor(), Tensor()};
    }
    const Tensor buckets = relative_position_buckets(args.s, args.t, args.distances, table.value.device());
    const Tensor rows = grads[0].reshape({table.value.size(1), -1}).to(acc_type(grads[0].scalar_type()));
    const Tensor sums = at::zeros({table.value.size(1), table.value.size(0)}, rows.options());
    table.accumulate(sums.index_add_(1, buckets.view(-1), rows).t());
    return {Tensor(), Tensor()};
  }
};

}  // namespace

Tensor relative_position_buckets(std::int64_t s, std::int64_t t, const RelativePositionBuckets& d,
                                 at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const Tensor relative = at::arange(t, options).unsqueeze(0) - at::arange(s, options).unsqueeze(1);
  const std::int64_t buckets = d.bidirectional ? d.buckets / 2 : d.buckets, exact = buckets / 2;
  const Tensor distance = d.bidirectional ? relative.abs() : (-relative).clamp_min(0);
  const Tensor scaled = (distance.to(at::kFloat) / static_cast<double>(exact)).log() /
                        std::log(static_cast<double>(d.max_distance) / static_cast<double>(exact)) *
                        static_cast<double>(buckets - exact);
  // RelativePositionBuckets below `exact`, whose logarithm may be -inf, do not use this value.
  const Tensor far = (scaled.clamp_min(0).to(at::kLong) + exact).clamp_max(buckets - 1);
  const Tensor bucket = at::where(distance < exact, distance, far);
  return d.bidirectional ? bucket + (relative > 0).to(at::kLong) * buckets : bucket;
}

Tensor relative_bias(tensor::Parameter& table, std::int64_t s, std::int64_t t,
                     const RelativePositionBuckets& distances) {
  return RelativeBiasFunction::apply(table.value, RelativeBiasFunction::Args{&table, s, t, distances});
}

}  // namespace colonnade::ops
