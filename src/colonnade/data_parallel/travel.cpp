// See travel.h.
#include "colonnade/data_parallel/travel.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include <memory>

namespace colonnade::data_parallel {

comm::Work sum_over(const comm::Group& group, const at::Tensor& all, const at::Tensor& needed,
                    const Travel& travel, std::string_view what) {
  if (group.size() == 1) return {};
  const at::NoGradGuard no_grad;
  const bool whole = needed.numel() == all.numel();
  if (!travel.in || *travel.in == needed.scalar_type())
    return whole ? group.all_reduce(all, what) : group.reduce_scatter(needed, all, what);
  const bool exchanged = travel.exchanged && !whole;
  const at::Tensor sent = all.to(*travel.in);
  const at::Tensor arrived =
      whole ? sent : at::empty(exchanged ? all.sizes() : needed.sizes(), sent.options());
  const auto work = std::make_shared<comm::Work>(whole       ? group.all_reduce(sent, what)
                                                 : exchanged ? group.all_to_all(arrived, sent, what)
                                                             : group.reduce_scatter(arrived, sent, what));
  return comm::Work([work, sent, arrived, needed, exchanged, members = group.size()] {
    const at::NoGradGuard no_grad;
    work->wait();
    if (!exchanged) return static_cast<void>(needed.copy_(arrived));
    at::Tensor sum = needed;
    at::sum_out(sum, arrived.view({members, -1}), {0}, /*keepdim=*/false, needed.scalar_type());
  });
}

}  // namespace colonnade::data_parallel
