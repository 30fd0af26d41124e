// Linear layer whose weight is replicated over the tensor-parallel ranks.
#pragma once

#include <memory>

#include "colonnade/layers/context.h"
#include "colonnade/layout/params/parts.h"

namespace colonnade::layers {

/// y = x W^T + bias with W [out, in] replicated over tp, for the tokens that this rank holds outside
/// tensor-parallel regions: x [s, b, in] (or [s / tp, b, in]) -> [s, b, out]; also x [b, in] -> [b, out]. No
/// communication. With sequence parallelism gradients are partial over tp where ParamSpec::partial says so,
/// and data_parallel all-reduces them; otherwise all ranks compute the same.
class ReplicatedLinear {
 public:
  ReplicatedLinear(const layout::ParamSpec& weight, const Context& context);
  ReplicatedLinear(const layout::LinearParams& params, const Context& context);
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;
  void add_parameters(std::vector<tensor::Parameter*>& all) const;

  std::unique_ptr<tensor::Parameter> weight;
  std::unique_ptr<tensor::Parameter> bias;  ///< null: none
};

/// The same product in fp32 (float64 for float64) whatever the dtypes of x [n, in], W [out, in] and b [out]
/// (may be null): for routers and gates. Gradients of W and b are accumulated into main_grad.
at::Tensor fp32_linear(const at::Tensor& x, tensor::Parameter& weight, tensor::Parameter* bias = nullptr);

}  // namespace colonnade::layers
