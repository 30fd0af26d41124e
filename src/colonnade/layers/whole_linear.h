// The matrix product that every tensor rank makes with the same weight.
#pragma once

#include <memory>

#include "colonnade/layers/context.h"

namespace colonnade::layers {

/// y = x W^T with W [out, in] whole on every rank, for the tokens that this rank has between the parallel
/// stretches: x [s, b, in] (or [s / tp, b, in]) -> [s, b, out]. No communication: with sequence parallelism
/// the gradient of W is partial over tp, as its spec says, and data_parallel sums it; without it every rank
/// computes the same.
class WholeLinear {
 public:
  WholeLinear(const plan::ParamSpec& weight, const Context& context);
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;

  std::unique_ptr<tensor::Parameter> weight;
};

}  // namespace colonnade::layers
