// LayerNorm or RMSNorm over the last dimension (--normalization).
#pragma once

#include <memory>
#include <optional>

#include "colonnade/config/model.h"
#include "colonnade/layers/context.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/ops/norm.h"

namespace colonnade::layers {

/// No communication. With sequence parallelism the gradients of its parameters are partial over tp, which
/// ParamSpec::partial records; data_parallel all-reduces them.
class Norm {
 public:
  Norm(const layout::NormParams& params, const config::Model& model, const Context& context);
  /// x in the dtype of the weight or fp32; the result in that of the weight.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;
  /// sum = x + residual, in the dtype of the residual, and its norm, in one pass.
  [[nodiscard]] ops::AddNormOutput add_forward(const at::Tensor& x, const at::Tensor& residual) const;

  std::unique_ptr<tensor::Parameter> weight;
  std::unique_ptr<tensor::Parameter> bias;  ///< null with RMSNorm and --no-layernorm-bias

 private:
  config::Normalization kind_;
  double epsilon_;
  bool zero_centered_;
};

/// The norm of `params`; nothing without one.
std::optional<Norm> make_norm(const std::optional<layout::NormParams>& params, const config::Model& model,
                              const Context& context);
/// Appends the norm's parameters, if there is one.
void add_norm(std::vector<tensor::Parameter*>& all, const std::optional<Norm>& norm);

}  // namespace colonnade::layers
