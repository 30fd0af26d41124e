// See norm.h.
#include "colonnade/layers/norm.h"

namespace colonnade::layers {

Norm::Norm(const layout::NormParams& params, const config::Model& model, const Context& context)
    : weight(context.make(params.weight)),
      bias(context.make(params.bias)),
      kind_(model.normalization),
      epsilon_(model.norm_epsilon),
      zero_centered_(model.apply_layernorm_1p) {}

at::Tensor Norm::forward(const at::Tensor& x) const {
  if (kind_ == config::Normalization::kRmsNorm) return ops::rms_norm(x, *weight, epsilon_, zero_centered_);
  return ops::layer_norm(x, *weight, bias.get(), epsilon_, zero_centered_);
}

ops::AddNormOutput Norm::add_forward(const at::Tensor& x, const at::Tensor& residual) const {
  if (kind_ == config::Normalization::kRmsNorm)
    return ops::add_rms_norm(x, residual, *weight, epsilon_, zero_centered_);
  return ops::add_layer_norm(x, residual, *weight, bias.get(), epsilon_, zero_centered_);
}

std::optional<Norm> make_norm(const std::optional<layout::NormParams>& params, const config::Model& model,
                              const Context& context) {
  if (!params) return std::nullopt;
  return std::optional<Norm>(std::in_place, *params, model, context);
}

void add_norm(std::vector<tensor::Parameter*>& all, const std::optional<Norm>& norm) {
  if (norm) collect(all, {norm->weight.get(), norm->bias.get()});
}

}  // namespace colonnade::layers
