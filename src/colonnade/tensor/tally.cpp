// See tally.h.
#include "colonnade/tensor/tally.h"

#include <ATen/ATen.h>

namespace colonnade::tensor {

Tally tally(const at::Tensor& sum, const at::Tensor& count) {
  const auto scalar = [&](const at::Tensor& x) {
    return x.detach().to(sum.options().dtype(at::kDouble)).reshape({});
  };
  return at::stack({scalar(sum), scalar(count)});
}

void add(Tallies& all, const std::string& name, const Tally& more) {
  at::Tensor& sum = all[name];
  sum = sum.defined() ? sum + more : more;
}

at::Tensor to_host(const at::Tensor& x) {
  return x.is_meta() ? at::zeros(x.sizes(), x.options().device(at::kCPU)) : x.cpu();
}

}  // namespace colonnade::tensor
