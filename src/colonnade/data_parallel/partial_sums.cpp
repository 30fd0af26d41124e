// See partial_sums.h.
#include "colonnade/data_parallel/partial_sums.h"

#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

namespace colonnade::data_parallel {
namespace {

const layout::Cut& cut_of(const tensor::Parameter& parameter) {
  return *parameter.spec.cut(layout::Axis::kTp);
}

/// Calls body(part, place) for each part of this rank that has several holders. Places count the rows of
/// shared pieces alone, in global order, so they mean the same on all ranks. Returns how many there are.
template <typename Body>
std::int64_t each_shared(const tensor::Parameter& parameter, const Body& body) {
  const layout::Cut& cut = cut_of(parameter);
  const auto dim = static_cast<std::size_t>(cut.dim);
  std::int64_t begin = 0;
  std::int64_t left_out = 0;
  for (const layout::Piece& piece : cut.pieces) {
    bool shared = false;
    for (const layout::Part& part : parameter.shard.parts) {
      const std::int64_t row = part.global[dim];
      if (part.holders == 1 || row < begin || row >= begin + piece.size) continue;
      body(part, row - left_out);
      shared = true;
    }
    begin += piece.size;
    if (!shared) left_out += piece.size;
  }
  return begin - left_out;
}

/// A parameter's shape with the shared rows of all ranks alone.
std::vector<std::int64_t> shared_shape(const tensor::Parameter& parameter) {
  auto shape = parameter.shard.shape;
  shape[static_cast<std::size_t>(cut_of(parameter).dim)] =
      each_shared(parameter, [](const layout::Part&, std::int64_t) {});
  return shape;
}

}  // namespace

// Each rank lays its rows at their places and leaves zeros elsewhere: holders of the same rows add up.
void sum_shared_rows(const std::vector<tensor::Parameter*>& parameters, const comm::Group& tp,
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
      const int dim = cut_of(p).dim;
      const auto d = static_cast<std::size_t>(dim);
      each_shared(p, [&](const layout::Part& part, std::int64_t place) {
        copy(rows.narrow(dim, place, part.length[d]), p.main_grad.narrow(dim, part.local[d], part.length[d]));
      });
    }
  };
  exchange([](const at::Tensor& global, const at::Tensor& local) { global.copy_(local); });
  tp.all_reduce(all, what).wait();
  exchange([](const at::Tensor& global, const at::Tensor& local) { local.copy_(global); });
}

}  // namespace colonnade::data_parallel
