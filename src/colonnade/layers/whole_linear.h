// The matrix product that every tensor rank makes with the same weight.
#pragma once

#include <memory>

#include "colonnade/layers/context.h"
#include "colonnade/layout/params/parts.h"

namespace colonnade::layers {

/// y = x W^T + bias with W [out, in] whole on every rank, for the tokens that this rank has between the
/// parallel stretches: x [s, b, in] (or [s / tp, b, in]) -> [s, b, out]; or of fewer rows, x [b, in]. No
/// communication: with sequence parallelism the gradients are partial over tp where their specs say so, and
/// data_parallel sums them; else every rank computes the same.
class WholeLinear {
 public:
  WholeLinear(const layout::ParamSpec& weight, const Context& context);
  WholeLinear(const layout::LinearParams& params, const Context& context);
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const;
  void add_parameters(std::vector<tensor::Parameter*>& all) const;

  std::unique_ptr<tensor::Parameter> weight;
  std::unique_ptr<tensor::Parameter> bias;  ///< null: none
};

}  // namespace colonnade::layers
