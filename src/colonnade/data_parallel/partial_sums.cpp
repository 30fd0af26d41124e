// See partial_sums.h.
#include "colonnade/data_parallel/partial_sums.h"

#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

namespace colonnade::data_parallel {
namespace {

/// Calls body(run, place) for each run of this rank that has several holders. Places count the rows of
/// shared pieces alone, in global order, so they mean the same on all ranks. Returns how many there are.
template <typename Body>
std::int64_t each_shared(const tensor::Parameter& parameter, const Body& body) {
  std::int64_t begin = 0;
  std::int64_t left_out = 0;
  for (const plan::Piece& piece : parameter.spec.pieces) {
    bool shared = false;
    for (const plan::Run& run : parameter.shard.runs) {
      if (run.holders == 1 || run.global < begin || run.global >= begin + piece.size) continue;
      body(run, run.global - left_out);
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
  shape[static_cast<std::size_t>(parameter.spec.split_dim)] =
      each_shared(parameter, [](const plan::Run&, std::int64_t) {});
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
      each_shared(p, [&](const plan::Run& run, std::int64_t place) {
        const int dim = p.spec.split_dim;
        copy(rows.narrow(dim, place, run.length), p.main_grad.narrow(dim, run.local, run.length));
      });
    }
  };
  exchange([](const at::Tensor& global, const at::Tensor& local) { global.copy_(local); });
  tp.all_reduce(all, what).wait();
  exchange([](const at::Tensor& global, const at::Tensor& local) { local.copy_(global); });
}

}  // namespace colonnade::data_parallel
