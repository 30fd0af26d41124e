// See partial_sums.h.
#include "colonnade/data_parallel/partial_sums.h"

#include <ATen/ops/zeros.h>

namespace colonnade::data_parallel {
namespace {

/// Rows with several holders go, each at its global place, into one zero-filled tensor that is summed
/// over all ranks: holders of the same rows add up, others leave zeros.
void sum_shared_rows(tensor::Parameter& parameter, const comm::Group& tp) {
  const int dim = parameter.spec.split_dim;
  auto shape = parameter.spec.shape;
  at::Tensor whole = at::zeros(shape, parameter.main_grad.options());
  const auto each_shared = [&](const auto& body) {
    for (const plan::Run& run : parameter.shard.runs)
      if (run.holders > 1)
        body(whole.narrow(dim, run.global, run.length),
             parameter.main_grad.narrow(dim, run.local, run.length));
  };
  each_shared([](at::Tensor global, const at::Tensor& local) { global.copy_(local); });
  tp.all_reduce(whole, parameter.spec.name + " / shared rows").wait();
  each_shared([](const at::Tensor& global, at::Tensor local) { local.copy_(global); });
}

}  // namespace

bool is_partial(const tensor::Parameter& parameter, const comm::Group& tp) {
  if (tp.size() == 1) return false;
  return parameter.spec.partial.has(plan::Axis::kTp) ||
         (parameter.spec.split_dim >= 0 && parameter.shard.replicated_runs);
}

void sum_partial(tensor::Parameter& parameter, const comm::Group& tp) {
  if (!is_partial(parameter, tp)) return;
  const at::NoGradGuard no_grad;
  if (parameter.spec.split_dim >= 0)
    sum_shared_rows(parameter, tp);
  else
    tp.all_reduce(parameter.main_grad, parameter.spec.name + " / partial gradient").wait();
}

}  // namespace colonnade::data_parallel
