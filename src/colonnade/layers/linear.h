// Column- and row-parallel linear layers, used in pairs: ColumnLinear enters a tensor-parallel region,
// RowLinear leaves it.
// Source: Shoeybi et al. 2019; Korthikanti et al. 2022; Megatron's core/tensor_parallel/layers.py.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/layers/context.h"

namespace colonnade::layers {

/// y = x W^T + b with W [out, in] sharded by rows: each rank holds p output features.
///
/// Forward: x [s, b, in], equal on all tp ranks, or [s / tp, b, in] with sequence parallelism
/// (all-gathered first) -> y [s, b, p].
/// Backward: the all-reduce of the gradient of x (reduce-scatter with sequence parallelism) overlaps the
/// weight gradient GEMM; with sequence parallelism the all-gather of x overlaps the input gradient GEMM.
/// Weight and bias gradients are accumulated into main_grad.
class ColumnLinear {
 public:
  ColumnLinear(const layout::ParamSpec& weight, const std::optional<layout::ParamSpec>& bias,
               const Context& context);
  at::Tensor forward(const at::Tensor& x) const;

  std::unique_ptr<tensor::Parameter> weight;
  std::unique_ptr<tensor::Parameter> bias;  ///< null: none
  bool add_bias = true;                     ///< false: the caller fuses the bias into the next operation
  const comm::Group tp;
  const bool sequence_parallel;
};

/// y = sum over tp ranks r of x_r W_r^T with W [out, in] sharded by columns. The bias is added after the
/// reduction, fused into the residual addition.
///
/// Forward: x [s, b, p] -> y [s, b, out] equal on all ranks (all-reduce), or [s / tp, b, out] with
/// sequence parallelism (reduce-scatter). Backward: none, or one all-gather of the gradient of y.
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
