// See grad_reduce.h.
#include "colonnade/data_parallel/grad_reduce.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include <memory>

namespace colonnade::data_parallel {

comm::Work reduce_over(const comm::Group& group, const at::Tensor& all, const at::Tensor& needed,
                       const GradReduce& grad_reduce, std::string_view what) {
  if (group.size() == 1) return {};
  const at::NoGradGuard no_grad;
  const bool all_reduces = needed.numel() == all.numel();
  if (grad_reduce.dtype == needed.scalar_type())
    return all_reduces ? group.all_reduce(all, what) : group.reduce_scatter(needed, all, what);
  const bool all_to_all = grad_reduce.all_to_all && !all_reduces;
  const at::Tensor sent = all.to(grad_reduce.dtype);
  const at::Tensor received =
      all_reduces ? sent : at::empty(all_to_all ? all.sizes() : needed.sizes(), sent.options());
  const auto work = std::make_shared<comm::Work>(all_reduces  ? group.all_reduce(sent, what)
                                                 : all_to_all ? group.all_to_all(received, sent, what)
                                                              : group.reduce_scatter(received, sent, what));
  return comm::Work([work, sent, received, needed, all_to_all, members = group.size()] {
    const at::NoGradGuard no_grad;
    work->wait();
    if (!all_to_all) return static_cast<void>(needed.copy_(received));
    at::Tensor sum = needed;
    at::sum_out(sum, received.view({members, -1}), {0}, /*keepdim=*/false, needed.scalar_type());
  });
}

}  // namespace colonnade::data_parallel
