// See metric_sum.h.
#include "colonnade/tensor/metric_sum.h"

#include <ATen/ATen.h>

namespace colonnade::tensor {

MetricSum metric_sum(const at::Tensor& sum, const at::Tensor& count) {
  const auto scalar = [&](const at::Tensor& x) {
    return x.detach().to(sum.options().dtype(at::kDouble)).reshape({});
  };
  return at::stack({scalar(sum), scalar(count)});
}

void add(MetricSums& all, const std::string& name, const MetricSum& more) {
  at::Tensor& sum = all[name];
  sum = sum.defined() ? sum + more : more;
}

void raise_max_attention_logits(Report& report, std::int64_t layer, const at::Tensor& logits) {
  at::Tensor& known = report.max_attention_logits[layer];
  known = known.defined() ? at::maximum(known, logits) : logits;
}

at::Tensor to_host(const at::Tensor& x) {
  return x.is_meta() ? at::zeros(x.sizes(), x.options().device(at::kCPU)) : x.cpu();
}

}  // namespace colonnade::tensor
