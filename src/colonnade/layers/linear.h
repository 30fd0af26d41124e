// The two matrix products of tensor parallelism. Use them in pairs: ColumnLinear opens a parallel
// stretch, RowLinear closes it.
// Source: Shoeybi et al. 2019; Korthikanti et al. 2022; Megatron's core/tensor_parallel/layers.py.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/layers/context.h"

namespace colonnade::layers {

/// y = x W^T + b with W [out, in] cut by rows: each rank owns p output features.
///
/// Forward: x [s, b, in], equal on all tp ranks, or [s / tp, b, in] with sequence parallelism
/// (gathered first) -> y [s, b, p].
/// Backward: the gradient of x is summed over tp (all-reduce, or reduce-scatter by sequence) while
/// the weight gradient is computed; with sequence parallelism x is gathered again for it, while the
/// gradient of x is computed. Weight and bias gradients go straight into main_grad.
class ColumnLinear {
 public:
  ColumnLinear(const layout::ParamSpec& weight, const std::optional<layout::ParamSpec>& bias,
               const Context& context);
  at::Tensor forward(const at::Tensor& x) const;

  std::unique_ptr<tensor::Parameter> weight;
  std::unique_ptr<tensor::Parameter> bias;  ///< null: none
  bool add_bias = true;                     ///< false: the caller fuses the bias into what follows
  const comm::Group tp;
  const bool sequence_parallel;
};

/// y = sum over tp of x_r W_r^T with W [out, in] cut by columns. The bias is not added here: it
/// belongs to the sum and is fused into the residual addition that follows.
///
/// Forward: x [s, b, p] -> y [s, b, out] equal on all ranks (all-reduce), or [s / tp, b, out] with
/// sequence parallelism (reduce-scatter). Backward: none, or one gather of the gradient of y.
class RowLinear {
 public:
  RowLinear(const layout::ParamSpec& weight, const std::optional<layout::ParamSpec>& bias,
            const Context& context);
  at::Tensor forward(const at::Tensor& x) const;

  std::unique_ptr<tensor::Parameter> weight;
  std::unique_ptr<tensor::Parameter> bias;  ///< for the caller; null: none
  const comm::Group tp;
  const bool sequence_parallel;
};

}  // namespace colonnade::layers
