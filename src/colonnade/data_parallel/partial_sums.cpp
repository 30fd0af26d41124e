// See partial_sums.h.
#include "colonnade/data_parallel/partial_sums.h"

#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

namespace colonnade::data_parallel {
namespace {

const layout::ShardedDim& tp_sharded_dim(const tensor::Parameter& parameter) {
  return *parameter.spec.sharded_dim(layout::Axis::kTp);
}

/// Calls body(part, offset) for each part of this rank that has several holders. Offsets count only rows of
/// shared segments in global order, so they agree on all ranks. Returns the number of such rows.
template <typename Body>
std::int64_t for_each_shared(const tensor::Parameter& parameter, const Body& body) {
  const layout::ShardedDim& sharded = tp_sharded_dim(parameter);
  const auto dim = static_cast<std::size_t>(sharded.dim);
  std::int64_t begin = 0;
  std::int64_t unshared_rows = 0;
  for (const layout::DimSegment& segment : sharded.segments) {
    bool shared = false;
    for (const layout::ShardBox& part : parameter.shard.boxes) {
      const std::int64_t row = part.global[dim];
      if (part.holders == 1 || row < begin || row >= begin + segment.size) continue;
      body(part, row - unshared_rows);
      shared = true;
    }
    begin += segment.size;
    if (!shared) unshared_rows += segment.size;
  }
  return begin - unshared_rows;
}

/// Shape of the shared rows of all ranks.
std::vector<std::int64_t> shared_shape(const tensor::Parameter& parameter) {
  auto shape = parameter.shard.shape;
  shape[static_cast<std::size_t>(tp_sharded_dim(parameter).dim)] =
      for_each_shared(parameter, [](const layout::ShardBox&, std::int64_t) {});
  return shape;
}

}  // namespace

// Each rank copies its rows to their offsets in a zero buffer, so the all-reduce adds the holders' rows.
void all_reduce_shared_rows(const std::vector<tensor::Parameter*>& parameters, const comm::Group& tp,
                            std::string_view what) {
  const at::NoGradGuard no_grad;
  std::vector<std::int64_t> starts{0};
  for (const tensor::Parameter* p : parameters)
    starts.push_back(starts.back() + c10::multiply_integers(shared_shape(*p)));
  const at::Tensor all = at::zeros({starts.back()}, parameters.front()->main_grad.options());
  const auto exchange = [&](const auto& copy) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const tensor::Parameter& p = *parameters[i];
      const at::Tensor rows = all.narrow(0, starts[i], starts[i + 1] - starts[i]).view(shared_shape(p));
      const int dim = tp_sharded_dim(p).dim;
      const auto d = static_cast<std::size_t>(dim);
      for_each_shared(p, [&](const layout::ShardBox& part, std::int64_t offset) {
        copy(rows.narrow(dim, offset, part.length[d]),
             p.main_grad.narrow(dim, part.local[d], part.length[d]));
      });
    }
  };
  exchange([](const at::Tensor& global, const at::Tensor& local) { global.copy_(local); });
  tp.all_reduce(all, what).wait();
  exchange([](const at::Tensor& global, const at::Tensor& local) { local.copy_(global); });
}

}  // namespace colonnade::data_parallel
